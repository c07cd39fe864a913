package up

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"trireme.dev/cmd/trireme/internal/tracestore"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry"
)

// tracesService is the name of the trace store among sockets and logs.
const tracesService = "traces"

const (
	// promptSpans is for the store here: whoever starts a pod looks at its trace at once.
	promptSpans = "OTEL_BSP_SCHEDULE_DELAY=500"
	// spanRoom holds the spans of a gang of a thousand, which come all at a time.
	spanRoom = "OTEL_BSP_MAX_QUEUE_SIZE=65536"
)

// unlessSet are the settings whose variables the user has not set.
func unlessSet(settings ...string) []string {
	return slices.DeleteFunc(settings, func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return os.Getenv(name) != ""
	})
}

// planTraces decides where the services' spans go: into a store of this process, unless the environment names another
// place or turns tracing off.
func (c *cluster) planTraces(certs pki.Files) error {
	env, err := telemetry.ReadEnvironment()
	switch {
	case err != nil:
		return err
	case c.cfg.TracesListen != "" && (env.Off != "" || env.Endpoint != ""):
		return fmt.Errorf("--traces-listen %s: no traces are kept here, as OTEL_* variables of the environment say", c.cfg.TracesListen)
	case env.Off != "":
		c.progress.step("tracing is off, as %s says", env.Off)
		return nil
	case env.Endpoint != "":
		c.progress.step("spans go to %s, as the environment says; none are kept here", env.Endpoint)
		c.env = unlessSet(spanRoom)
		return nil
	}
	c.traces = true
	c.spans = rpc.ServerConfig{Name: tracesService, UnixSocket: c.layout.otlpSocket()}
	if c.cfg.TracesListen != "" {
		if c.spans.TCP, err = claim("--traces-listen", c.cfg.TracesListen); err != nil {
			return err
		}
		c.spans.CertFile, c.spans.KeyFile, c.spans.CAFile = certs.Cert, certs.Key, certs.CA
		c.progress.step("spans of other machines are taken at https://%s", c.spans.TCP)
	}
	c.env = append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=unix://" + c.layout.otlpSocket()}, unlessSet(promptSpans, spanRoom)...)
	return nil
}

// startTraces begins to keep traces, if they are kept here. What goes wrong costs the traces and nothing else.
func (c *cluster) startTraces(ctx context.Context) {
	run := &supervised{done: make(chan struct{})}
	ctx, run.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.running[tracesService] = run
	if !c.traces {
		close(run.done)
		return
	}
	go func() {
		defer close(run.done)
		if err := daemon.Run(ctx, daemon.Task{Name: tracesService, Run: c.runTraces}); err != nil {
			c.progress.step("no traces are kept: %v", err)
		}
	}()
}

func (c *cluster) runTraces(ctx context.Context) error {
	log, err := openLog(c.layout.log(tracesService))
	if err != nil {
		return err
	}
	defer log.Close()
	server, err := tracestore.NewServer(tracestore.ServerConfig{
		Spans:       c.spans,
		QuerySocket: c.layout.socket(tracesService),
	}, tracestore.New(tracestore.Config{}), telemetry.NewLoggerTo(log, telemetry.Config{}, tracesService))
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// tracesAddress is where the CLI asks for traces.
func (c *cluster) tracesAddress() string {
	if !c.traces {
		return ""
	}
	return "unix://" + c.layout.socket(tracesService)
}
