package telemetry

import (
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Environment is what the standard OTEL_* variables say about spans, as far as it is decided here.
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
type Environment struct {
	// Endpoint is where spans go, empty where nobody said.
	Endpoint string
	// Off is the setting that turns tracing off whatever Endpoint says, as NAME=value; empty where none does.
	Off string

	queueSize int
	root      sdktrace.Sampler
}

// Tracing reports whether spans are recorded.
func (e Environment) Tracing() bool { return e.Off == "" && e.Endpoint != "" }

// ReadEnvironment reads the variables. One that cannot be followed is an error, which names it: spans that silently go
// nowhere are found out about when they are needed.
func ReadEnvironment() (Environment, error) {
	var e Environment
	const disabled, exporter, protocol = "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"
	if value := os.Getenv(disabled); value != "" {
		off, err := strconv.ParseBool(value)
		if err != nil {
			return e, fmt.Errorf("%s: %q is neither true nor false", disabled, value)
		}
		if off {
			e.Off = disabled + "=" + value
		}
	}
	switch value := os.Getenv(exporter); strings.ToLower(value) {
	case "", "otlp":
	case "none":
		e.Off = exporter + "=" + value
	default:
		return e, fmt.Errorf("%s: %q is neither otlp nor none", exporter, value)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol} {
		if value := os.Getenv(name); value != "" && value != "grpc" {
			return e, fmt.Errorf("%s: %q is not spoken here; collectors take grpc, usually at port 4317", name, value)
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		if err := checkEndpoint(value); err != nil {
			return e, fmt.Errorf("%s: %w", name, err)
		}
		if e.Endpoint == "" {
			e.Endpoint = value
		}
	}
	if err := checkNumbers(); err != nil {
		return e, err
	}
	var err error
	if e.queueSize, err = queueSize(); err != nil {
		return e, err
	}
	e.root, err = rootSampler()
	return e, err
}

func checkEndpoint(value string) error {
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Scheme == "":
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return nil
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return nil
	}
	return fmt.Errorf("%q: want http://HOST:PORT, https://HOST:PORT or unix:///PATH", value)
}

// checkNumbers looks at what the SDK would ignore if it were wrong.
func checkNumbers() error {
	for _, name := range []string{
		"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
		"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
	} {
		value := os.Getenv(name)
		if n, err := strconv.Atoi(value); value != "" && (err != nil || n < 1) {
			return fmt.Errorf("%s: %q is not a positive number", name, value)
		}
	}
	return nil
}

// queueSize is OTEL_BSP_MAX_QUEUE_SIZE, by the specification's default 2,048 spans.
func queueSize() (int, error) {
	const name = "OTEL_BSP_MAX_QUEUE_SIZE"
	value := os.Getenv(name)
	if value == "" {
		return sdktrace.DefaultMaxQueueSize, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %q is not a positive number", name, value)
	}
	return n, nil
}
