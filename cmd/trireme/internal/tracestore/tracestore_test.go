package tracestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"trireme.dev/cmd/trireme/internal/otlpjson"
	"trireme.dev/cmd/trireme/internal/tracestore"
	"trireme.dev/kit/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func id(n int) tracestore.TraceID { return tracestore.TraceID{14: byte(n >> 8), 15: byte(n)} }

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// batch is spans of one service; each belongs to the trace of its number and has a pod.
func batch(service, pod string, size int, traces ...int) []*tracepb.ResourceSpans {
	scope := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: "trireme.dev"}}
	for i, n := range traces {
		trace := id(n)
		scope.Spans = append(scope.Spans, &tracepb.Span{
			TraceId: trace[:], SpanId: []byte{0, 0, 0, 0, 0, 0, byte(n), byte(i)}, Name: strings.Repeat("x", size),
			StartTimeUnixNano: 1_700_000_000_000_000_001, EndTimeUnixNano: 1_700_000_000_000_000_002,
			Attributes: []*commonpb.KeyValue{text("k8s.pod.uid", pod)},
		})
	}
	return []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{text("service.name", service)}},
		ScopeSpans: []*tracepb.ScopeSpans{scope},
	}}
}

func add(t *testing.T, s *tracestore.Store, b []*tracepb.ResourceSpans) int {
	t.Helper()
	rejected, err := s.Add(b)
	if err != nil {
		t.Fatal(err)
	}
	return rejected
}

func kept(t *testing.T, s *tracestore.Store, n int) int {
	t.Helper()
	data, err := s.Get(id(n))
	if errors.Is(err, tracestore.ErrNotFound) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	spans := 0
	for _, r := range data.ResourceSpans {
		for _, scope := range r.ScopeSpans {
			for _, span := range scope.Spans {
				if span.TraceID != id(n).String() {
					t.Errorf("trace %s has a span of %s", id(n), span.TraceID)
				}
				spans++
			}
		}
	}
	return spans
}

func TestOldestTraceIsPushedOutWhole(t *testing.T) {
	s := tracestore.New(tracestore.Config{MaxTraces: 3})
	add(t, s, batch("apiserver", "a", 1, 1, 2, 1))
	add(t, s, batch("scheduler", "a", 1, 3, 1))
	if got := []int{kept(t, s, 1), kept(t, s, 2), kept(t, s, 3)}; !cmp.Equal(got, []int{3, 1, 1}) {
		t.Errorf("kept %v of traces 1, 2, 3", got)
	}
	add(t, s, batch("nodeagent", "a", 1, 4))
	if got := []int{kept(t, s, 1), kept(t, s, 2), kept(t, s, 3), kept(t, s, 4)}; !cmp.Equal(got, []int{0, 1, 1, 1}) {
		t.Errorf("kept %v of traces 1 to 4", got)
	}
	// What comes late of it is not taken for a trace of its own, and does not push out another.
	if n := add(t, s, batch("nodeagent", "a", 1, 1, 1)); n != 2 {
		t.Errorf("%d late spans rejected, want 2", n)
	}
	if got := []int{kept(t, s, 1), kept(t, s, 2)}; !cmp.Equal(got, []int{0, 1}) {
		t.Errorf("kept %v of traces 1 and 2", got)
	}
}

func TestBytesAreBounded(t *testing.T) {
	s := tracestore.New(tracestore.Config{MaxBytes: 80_000})
	// One trace may have an eighth: nine spans of a thousand bytes.
	rejected := 0
	for range 100 {
		rejected += add(t, s, batch("apiserver", "a", 1000, 1))
	}
	if n := kept(t, s, 1); n == 0 || n > 9 || n+rejected != 100 {
		t.Errorf("%d of 100 spans kept, %d rejected", n, rejected)
	}
	for n := 2; n < 200; n++ {
		add(t, s, batch("apiserver", "a", 1000, n))
	}
	all := 0
	for n := range 200 {
		all += kept(t, s, n)
	}
	if all < 60 || all > 80 {
		t.Errorf("%d spans of a thousand bytes in 80,000", all)
	}
	if kept(t, s, 199) != 1 || kept(t, s, 1) != 0 {
		t.Error("the newest is not there, or the oldest is")
	}
}

func TestSpansWithoutATrace(t *testing.T) {
	s := tracestore.New(tracestore.Config{})
	b := batch("apiserver", "a", 1, 1)
	b[0].ScopeSpans[0].Spans[0].TraceId = []byte{1}
	if n := add(t, s, b); n != 1 {
		t.Errorf("%d rejected, want 1", n)
	}
}

func TestManyWriters(t *testing.T) {
	s := tracestore.New(tracestore.Config{MaxTraces: 50})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := range 200 {
				if _, err := s.Add(batch("apiserver", "a", 10, n, w)); err != nil {
					t.Error(err)
				}
				if _, err := s.Get(id(n)); err != nil && !errors.Is(err, tracestore.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all := 0
	for n := range 200 {
		if kept(t, s, n) > 0 {
			all++
		}
	}
	if all != 50 {
		t.Errorf("%d traces kept, want 50", all)
	}
}

// TestAnswers holds the form of the answers, which is that of Jaeger v1.76 as its source has it.
func TestAnswers(t *testing.T) {
	s := tracestore.New(tracestore.Config{})
	b := batch("apiserver", "uid-1", 3, 258)
	span := b[0].ScopeSpans[0].Spans[0]
	span.ParentSpanId, span.Kind = []byte{0, 0, 0, 0, 0, 0, 0, 9}, tracepb.Span_SPAN_KIND_SERVER
	span.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "no"}
	span.Attributes = append(span.Attributes, &commonpb.KeyValue{Key: "n", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: 1 << 60}}})
	linked := id(7)
	span.Links = []*tracepb.Span_Link{{TraceId: linked[:], SpanId: []byte{1, 2, 3, 4, 5, 6, 7, 8}}}
	add(t, s, b)
	add(t, s, batch("nodeagent", "uid-1", 1, 259))
	add(t, s, batch("nodeagent", "uid-2", 1, 260))
	server := httptest.NewServer(tracestore.Handler(s))
	defer server.Close()
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{
			"/api/v3/traces/00000000000000000000000000000102", 200,
			`{"result":{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"apiserver"}}]},` +
				`"scopeSpans":[{"scope":{"name":"trireme.dev"},"spans":[{"traceId":"00000000000000000000000000000102","spanId":"0000000000000200",` +
				`"parentSpanId":"0000000000000009","name":"xxx","kind":2,"startTimeUnixNano":"1700000000000000001","endTimeUnixNano":"1700000000000000002",` +
				`"attributes":[{"key":"k8s.pod.uid","value":{"stringValue":"uid-1"}},{"key":"n","value":{"intValue":"1152921504606846976"}}],` +
				`"links":[{"traceId":"00000000000000000000000000000007","spanId":"0102030405060708"}],"status":{"message":"no","code":2}}]}]}]}}`,
		},
		{"/api/v3/traces/999", 404, `{"error":{"httpCode":404,"message":"No traces found"}}`},
		{"/api/v3/traces/zz", 400, `{"error":{"httpCode":400,"message":"malformed parameter trace_id: \"zz\" is no trace id: want 32 hexadecimal digits"}}`},
		{"/api/traces?service=nodeagent&tags=" + url.QueryEscape(`{"k8s.pod.uid":"uid-1"}`), 200, `{"data":[{"traceID":"00000000000000000000000000000103"}]}`},
		{"/api/traces?limit=2", 200, `{"data":[{"traceID":"00000000000000000000000000000104"},{"traceID":"00000000000000000000000000000103"}]}`},
		{"/api/traces?tags=x", 400, `{"error":{"httpCode":400,"message":"malformed parameter tags: invalid character 'x' looking for beginning of value"}}`},
		{"/api/traces?limit=-1", 400, `{"error":{"httpCode":400,"message":"malformed parameter limit: -1"}}`},
	} {
		resp, err := server.Client().Get(server.URL + tt.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(body)); resp.StatusCode != tt.code || got != tt.want {
			t.Errorf("%s: %d\n got %s\nwant %s", tt.path, resp.StatusCode, got, tt.want)
		}
	}
}

func TestServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "traces")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	otlp, query := filepath.Join(dir, "otlp.sock"), filepath.Join(dir, "traces.sock")
	store := tracestore.New(tracestore.Config{})
	server, err := tracestore.NewServer(tracestore.ServerConfig{Spans: rpc.ServerConfig{Name: "traces", UnixSocket: otlp}, QuerySocket: query},
		store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	<-server.Ready()
	for _, socket := range []string{otlp, query} {
		if st, err := os.Stat(socket); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", socket, st, err)
		}
	}
	conn, err := rpc.Dial(rpc.ClientConfig{Address: "unix://" + otlp})
	if err != nil {
		t.Fatal(err)
	}
	_, err = collectorpb.NewTraceServiceClient(conn).Export(ctx, &collectorpb.ExportTraceServiceRequest{ResourceSpans: batch("apiserver", "a", 1, 1)})
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", query)
	}}
	resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://traces/api/v3/traces/%s", id(1)))
	if err != nil {
		t.Fatal(err)
	}
	var got otlpjson.Response
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(&got), resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if got.Result == nil || got.Result.ResourceSpans[0].ScopeSpans[0].Spans[0].Name != "x" {
		t.Errorf("got %+v", got)
	}
	transport.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
