package cli_test

import (
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/tracing"
	"trireme.dev/cmd/trireme/internal/cli/trace"
	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/cmd/trireme/internal/tracestore"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry/telemetrytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/apitest"
)

// storeFor serves an empty store of traces and returns where.
func storeFor(t *testing.T) (*tracestore.Store, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "traces") // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	store := tracestore.New(tracestore.Config{})
	query := filepath.Join(dir, "q")
	server, err := tracestore.NewServer(tracestore.ServerConfig{Spans: rpc.ServerConfig{Name: "traces", UnixSocket: filepath.Join(dir, "s")}, QuerySocket: query},
		store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx := t.Context()
	go func() { ended <- server.Run(ctx) }()
	<-server.Ready()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return store, "unix://" + query
}

// keep puts spans into a store: SERVICE NAME START END in milliseconds; the first is the root. link is a trace that all point to.
func keep(t *testing.T, store *tracestore.Store, id, link string, attributes map[string]string, spans ...[4]any) {
	t.Helper()
	traceID, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	text := func(k, v string) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: k, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v}}}
	}
	start := time.Unix(1_700_000_000, 0)
	for i, s := range spans {
		at := func(ms any) uint64 { return uint64(start.Add(time.Duration(ms.(int)) * time.Millisecond).UnixNano()) }
		span := &tracepb.Span{TraceId: traceID, SpanId: []byte{traceID[15], traceID[14], 0, 0, 0, 0, 0, byte(i + 1)}, Name: s[1].(string), StartTimeUnixNano: at(s[2]), EndTimeUnixNano: at(s[3])}
		if i > 0 {
			span.ParentSpanId = []byte{traceID[15], traceID[14], 0, 0, 0, 0, 0, 1}
		}
		if link != "" {
			to, err := hex.DecodeString(link)
			if err != nil {
				t.Fatal(err)
			}
			span.Links = []*tracepb.Span_Link{{TraceId: to, SpanId: []byte{1, 2, 3, 4, 5, 6, 7, 8}}}
		}
		for k, v := range attributes {
			span.Attributes = append(span.Attributes, text(k, v))
		}
		_, err := store.Add([]*tracepb.ResourceSpans{{
			Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{text("service.name", s[0].(string))}},
			ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{span}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

const podManifest = `{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {containers: [{name: c, image: "busybox:1"}]}}`

func TestTrace(t *testing.T) {
	sampled := true
	telemetrytest.RecordSpans(t, func(string) bool { return sampled })
	store, address := storeFor(t)
	s := apitest.New(t)
	p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() })
	run := func(wantCode int, args ...string) string {
		t.Helper()
		out, errOut, code := p.run(t.Context(), "", args...)
		if code != wantCode {
			t.Fatalf("trireme %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errOut)
		}
		return out + errOut
	}
	says := func(out string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("no %q in:\n%s", w, out)
			}
		}
	}
	create := func(name string) *corev1.Pod {
		t.Helper()
		if out, errOut, code := p.run(t.Context(), strings.ReplaceAll(podManifest, "NAME", name), "create", "-f", "-"); code != 0 {
			t.Fatalf("create: %s%s", out, errOut)
		}
		pod, err := client.For[*corev1.Pod](s.Conn()).Get(t.Context(), "default", name)
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	web := create("web")
	id := tracing.SpanContext(web.GetMetadata()).TraceID().String()

	says(run(1, "trace", "pod/web"), "this context does not say where traces are", "--traces http://HOST:16686")
	says(run(1, "trace", id, "--traces", address), "trace "+id+" is not at "+address)
	says(run(1, "trace", "pod/web", "--traces", "unix:///nowhere/traces.sock"), "cannot ask for traces at unix:///nowhere/traces.sock", "is it up?")
	says(run(1, "trace", "pod/web", "--traces", "ftp://x"), `"ftp://x": want unix:///PATH`)
	says(run(2, "trace"), "TYPE/NAME or a trace id")
	says(run(2, "trace", "pod/web", "-A", "--traces", address), "go with --last")
	says(run(2, "trace", "pods", "--traces", address), "want TYPE/NAME")
	says(run(2, "trace", "pod/web", "-o", "yaml", "--traces", address), "want json")
	says(run(1, "trace", "pod/nowhere", "--traces", address), `Pod "default/nowhere" not found`)

	setStatus(t, s.Conn(), `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`)
	uid := map[string]string{"k8s.pod.uid": web.GetMetadata().GetUid()}
	keep(t, store, id, "", uid, [4]any{"apiserver", "trireme.core.v1.PodService/Create", 0, 5},
		[4]any{"scheduler", "queue wait", 5, 105}, [4]any{"nodeagent", "syncPod", 150, 200}, [4]any{"nodeagent", "Ready", 200, 200})
	later := "0000000000000000000000000000abcd"
	keep(t, store, later, id, uid, [4]any{"nodeagent", "syncTerminatingPod", 0, 5})

	picture := run(0, "trace", "pod/web", "--traces", address)
	says(picture, "pod/web in default, trace "+id+": 4 spans of 3 services", "Ready after 200ms", "The wait that cost most: queue wait, 100ms in scheduler",
		"* PodService/Create", "*   (nothing recorded)", "Later, syncTerminatingPod:  trireme trace "+later)
	if strings.Contains(picture, "\x1b") {
		t.Errorf("colours without a terminal:\n%q", picture)
	}
	says(run(0, "trace", strings.ToUpper(later), "--traces", address), "trace "+later+": 1 span of 1 service")

	var d trace.Document
	if err := json.Unmarshal([]byte(run(0, "trace", "pod/web", "-o", "json", "--traces", address)), &d); err != nil {
		t.Fatal(err)
	}
	if d.TraceID != id || d.Object == nil || d.Object.Name != "web" || d.TotalMs != 200 || d.ReadyMs == nil || *d.ReadyMs != 200 || len(d.Spans) != 4 ||
		len(d.Gaps) != 1 || d.Gaps[0].DurationMs != 45 || len(d.LaterTraces) != 1 || d.LaterTraces[0] != later {
		t.Errorf("document: %+v", d)
	}

	// One that is not sampled, one whose trace is gone.
	sampled = false
	create("dark")
	says(run(1, "trace", "pod/dark", "--traces", address), "pod/dark was not sampled", "OTEL_TRACES_SAMPLER=always_on")
	sampled = true
	create("gone")
	says(run(1, "trace", "pod/dark", "--wait", "--timeout", "50ms", "--traces", address), "pod/dark is not Ready after 50ms")
	says(run(0, "trace", "--last", "5", "--traces", address), "1 pods, the newest first created; 1 not sampled, 1 not kept any more, 0 not Ready",
		"PodService/Create   apiserver   1", "until Ready", "trireme trace pod/web")
	says(run(1, "trace", "--last", "5", "-n", "kube-system", "--traces", address), "no pods to compare")
	says(run(1, "trace", "--last", "1", "--traces", address), "none of the 1 newest pods has a trace here")
}

func TestTraceWithoutTracing(t *testing.T) {
	_, address := storeFor(t)
	s := apitest.New(t)
	p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() })
	if out, errOut, code := p.run(t.Context(), strings.ReplaceAll(podManifest, "NAME", "web"), "create", "-f", "-"); code != 0 {
		t.Fatalf("create: %s%s", out, errOut)
	}
	_, errOut, code := p.run(t.Context(), "", "trace", "pod/web", "--traces", address)
	if code != 1 || !strings.Contains(errOut, "pod/web has no trace: tracing was off") || !strings.Contains(errOut, "OTEL_EXPORTER_OTLP_ENDPOINT") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
