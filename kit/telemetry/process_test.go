package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// receiver is a collector: what answer says happens to a batch decides what becomes of it.
type receiver struct {
	collectorpb.UnimplementedTraceServiceServer

	answer func(ctx context.Context, spans int) (*collectorpb.ExportTraceServiceResponse, error)

	mu    sync.Mutex
	names []string
}

func (r *receiver) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	var names []string
	for _, process := range req.GetResourceSpans() {
		for _, scope := range process.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				names = append(names, s.GetName())
			}
		}
	}
	resp, err := &collectorpb.ExportTraceServiceResponse{}, error(nil)
	if r.answer != nil {
		resp, err = r.answer(ctx, len(names))
	}
	if err == nil {
		r.mu.Lock()
		r.names = append(r.names, names...)
		r.mu.Unlock()
	}
	return resp, err
}

func (r *receiver) received() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.names...)
}

// listen serves a receiver on a unix socket and returns its endpoint.
func listen(t *testing.T, r *receiver) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "otlp") // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(<-served, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return "unix://" + lis.Addr().String()
}

// start starts a process that may begin traces with "root".
func start(t *testing.T, log io.Writer, env map[string]string) *Process {
	t.Helper()
	p, err := begin(t, log, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func begin(t *testing.T, log io.Writer, env map[string]string) (*Process, error) {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	for k, v := range env {
		t.Setenv(k, v)
	}
	cfg := Config{MetricsListen: "127.0.0.1:0"}
	return Start(t.Context(), cfg, "tester", func(span string) bool { return span == "root" }, NewLoggerTo(log, cfg, "tester"))
}

// spans makes n spans of one trace and returns how many were made, the root included.
func spans(n int) int {
	ctx, root := otel.Tracer("test").Start(context.Background(), "root")
	for i := range n {
		_, s := otel.Tracer("test").Start(ctx, fmt.Sprintf("s%d", i))
		s.End()
	}
	root.End()
	return n + 1
}

func TestSpansReachACollectorOnAUnixSocket(t *testing.T) {
	r := &receiver{}
	p := start(t, io.Discard, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": listen(t, r)})
	made := spans(3)
	p.Stop()
	if got := r.received(); len(got) != made || p.SpansDropped() != 0 {
		t.Errorf("%d spans made, received %v, %d dropped", made, got, p.SpansDropped())
	}
}

// TestLostSpansAreCounted holds that no span is lost in silence: what was made is what a collector took and what is
// counted as dropped, whatever the collector does, and ending a span waits for none of it.
func TestLostSpansAreCounted(t *testing.T) {
	const queue, made = 64, 1001
	held := func(ctx context.Context, _ int) (*collectorpb.ExportTraceServiceResponse, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	for _, tt := range []struct {
		name   string
		answer func(context.Context, int) (*collectorpb.ExportTraceServiceResponse, error)
		down   bool
		taken  func(n int) bool
	}{
		{name: "down", down: true, taken: func(n int) bool { return n == 0 }},
		// It takes no batch while spans are made: all but what the queue holds must be refused at once.
		{name: "slow", answer: held, taken: func(n int) bool { return n == 0 }},
		{
			name: "full", taken: func(n int) bool { return n == 0 },
			answer: func(context.Context, int) (*collectorpb.ExportTraceServiceResponse, error) {
				return nil, status.Error(codes.FailedPrecondition, "disk full")
			},
		},
		{
			name: "takes half", taken: func(n int) bool { return n > 0 },
			answer: func(_ context.Context, n int) (*collectorpb.ExportTraceServiceResponse, error) {
				return &collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{
					RejectedSpans: int64(n / 2), ErrorMessage: "half is enough",
				}}, nil
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rejected := 0
			r := &receiver{answer: tt.answer}
			if tt.name == "takes half" {
				r.answer = func(ctx context.Context, n int) (*collectorpb.ExportTraceServiceResponse, error) {
					rejected += n / 2
					return tt.answer(ctx, n)
				}
			}
			endpoint := "unix:///nowhere/otlp.sock"
			if !tt.down {
				endpoint = listen(t, r)
			}
			var log bytes.Buffer
			p := start(t, &log, map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_MAX_QUEUE_SIZE": fmt.Sprint(queue),
				"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16", "OTEL_EXPORTER_OTLP_TIMEOUT": "200",
			})
			if got := spans(made - 1); got != made {
				t.Fatalf("%d spans made", got)
			}
			// With a collector that takes nothing, no more than the queue can be under way; had OnEnd waited for it, none
			// would be lost.
			if during := p.SpansDropped(); tt.name != "takes half" && during < made-queue {
				t.Errorf("%d spans dropped while they were made, want at least %d", during, made-queue)
			}
			p.Stop()
			taken := len(r.received()) - rejected
			if got := int(p.SpansDropped()); got+taken != made || !tt.taken(taken) {
				t.Errorf("%d spans made, %d taken, %d counted as dropped", made, taken, got)
			}
			if !strings.Contains(log.String(), fmt.Sprintf("msg=\"spans lost\" service=tester spansDropped=%d", p.SpansDropped())) {
				t.Errorf("log: %s", &log)
			}
		})
	}
}

func TestSampling(t *testing.T) {
	followed := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true})
	for _, tt := range []struct {
		sampler, arg string
		roots        bool
	}{
		{"", "", true},
		{"always_on", "", true},
		{"parentbased_always_off", "", false},
		{"traceidratio", "1", true},
		{"parentbased_traceidratio", "0", false},
	} {
		t.Run(tt.sampler+tt.arg, func(t *testing.T) {
			r := &receiver{}
			p := start(t, io.Discard, map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": listen(t, r), "OTEL_TRACES_SAMPLER": tt.sampler, "OTEL_TRACES_SAMPLER_ARG": tt.arg,
			})
			begin := func(ctx context.Context, name string) trace.Span {
				_, s := otel.Tracer("test").Start(ctx, name)
				s.End()
				return s
			}
			root := begin(context.Background(), "root")
			begin(context.Background(), "other")
			begin(trace.ContextWithRemoteSpanContext(context.Background(), followed), "followed")
			p.Stop()
			want := "followed"
			if tt.roots {
				want = "root followed"
			}
			if got := strings.Join(r.received(), " "); got != want {
				t.Errorf("received %q, want %q", got, want)
			}
			if !root.SpanContext().IsValid() {
				t.Error("a root that is not sampled has no context to pass on")
			}
		})
	}
}

func TestBadVariables(t *testing.T) {
	for name, values := range map[string][]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":        {"collector:4317", "http://", "unix:relative", "%zz"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"ftp://x"},
		"OTEL_EXPORTER_OTLP_PROTOCOL":        {"http/protobuf"},
		"OTEL_TRACES_EXPORTER":               {"zipkin"},
		"OTEL_SDK_DISABLED":                  {"perhaps"},
		"OTEL_TRACES_SAMPLER":                {"sometimes"},
		"OTEL_BSP_MAX_QUEUE_SIZE":            {"0", "many"},
		"OTEL_BSP_SCHEDULE_DELAY":            {"1s"},
	} {
		for _, value := range values {
			t.Run(name+"="+value, func(t *testing.T) {
				_, err := begin(t, io.Discard, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", name: value})
				if err == nil {
					t.Fatal("accepted")
				}
				if text := err.Error(); !strings.HasPrefix(text, name) || !strings.Contains(text, fmt.Sprintf("%q", value)) || strings.Contains(text, "\n") {
					t.Errorf("error is %q, want one line with the variable and its value", text)
				}
			})
		}
	}
	t.Run("ratio", func(t *testing.T) {
		_, err := begin(t, io.Discard, map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "50%",
		})
		if err == nil || !strings.HasPrefix(err.Error(), "OTEL_TRACES_SAMPLER_ARG") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestOffWithoutAnEndpoint(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no endpoint": {},
		"disabled":    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		"no exporter": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, io.Discard, env)
			_, s := otel.Tracer("test").Start(context.Background(), "root")
			if s.IsRecording() || s.SpanContext().IsValid() {
				t.Error("a span was begun")
			}
			p.Stop()
			if n := p.SpansDropped(); n != 0 {
				t.Errorf("%d spans dropped", n)
			}
		})
	}
}

func TestLogsCarryTheTrace(t *testing.T) {
	r := &receiver{}
	var log bytes.Buffer
	p := start(t, &log, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": listen(t, r)})
	ctx, s := otel.Tracer("test").Start(context.Background(), "root")
	logger := NewLoggerTo(&log, Config{JSON: true}, "tester")
	logger.With(slog.String(KeyPod, "default/a")).InfoContext(ctx, "bound")
	logger.Info("alone")
	s.End()
	p.Stop()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	var with, without map[string]any
	if err := errors.Join(json.Unmarshal([]byte(lines[0]), &with), json.Unmarshal([]byte(lines[1]), &without)); err != nil {
		t.Fatalf("%v: %s", err, &log)
	}
	if with[KeyTraceID] != s.SpanContext().TraceID().String() || with[KeySpanID] != s.SpanContext().SpanID().String() || with[KeyPod] != "default/a" {
		t.Errorf("line: %v, span %v", with, s.SpanContext())
	}
	if _, has := without[KeyTraceID]; has {
		t.Errorf("line without a trace: %v", without)
	}
}

func TestMetricsAndHealth(t *testing.T) {
	p := start(t, io.Discard, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "unix:///nowhere/otlp.sock", "OTEL_BSP_MAX_QUEUE_SIZE": "1"})
	counted, err := otel.Meter("test").Int64Counter("scheduler_schedule_attempts_total")
	if err != nil {
		t.Fatal(err)
	}
	counted.Add(t.Context(), 3)
	spans(10) // the queue holds one
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	notReady := errors.New("informers are not synced")
	var mu sync.Mutex
	go func() {
		ended <- p.Run(ctx, func() error { mu.Lock(); defer mu.Unlock(); return notReady })
	}()
	client := &http.Client{Timeout: 10 * time.Second}
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := client.Get("http://" + p.MetricsAddr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, body := get("/livez"); code != 200 || body != "ok\n" {
		t.Errorf("/livez: %d %q", code, body)
	}
	if code, body := get("/readyz"); code != 503 || body != "informers are not synced\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	mu.Lock()
	notReady = nil
	mu.Unlock()
	if code, body := get("/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	_, body := get("/metrics")
	for _, want := range []string{"\nscheduler_schedule_attempts_total 3\n", "\ngo_goroutines ", "\nprocess_cpu_seconds_total "} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics has no %q", strings.TrimSpace(want))
		}
	}
	dropped := 0
	if _, after, ok := strings.Cut(body, "\ntrireme_spans_dropped_total "); ok {
		if _, err := fmt.Sscan(after, &dropped); err != nil {
			t.Error(err)
		}
	}
	if dropped < 9 {
		t.Errorf("/metrics tells of %d dropped spans, want at least 9", dropped)
	}
	if code, _ := get("/debug/pprof/"); code != 404 {
		t.Errorf("/debug/pprof/: %d", code)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
