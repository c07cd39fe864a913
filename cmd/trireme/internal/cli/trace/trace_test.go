package trace_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"trireme.dev/cmd/trireme/internal/cli/trace"
	"trireme.dev/cmd/trireme/internal/cli/trace/tracetext"
	"trireme.dev/cmd/trireme/internal/otlpjson"
)

// TestAnalyze runs the scripts in testdata:
//
//	analyze    spans as tracetext reads them; prints tree, path, gaps and what is missing
//	steps      several traces with a line --- between them; prints the table of steps
func TestAnalyze(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "analyze":
				return describe(trace.Analyze(tracetext.Parse(t, d.Input)))
			case "steps":
				var traces []*trace.Trace
				for _, text := range strings.Split(d.Input, "---\n") {
					traces = append(traces, trace.Analyze(tracetext.Parse(t, text)))
				}
				var b strings.Builder
				for _, s := range trace.Steps(traces) {
					fmt.Fprintf(&b, "%s (%s): in %d, p50 %s, p95 %s, max %s\n", s.Name, s.Service, s.Traces, s.P50, s.P95, s.Max)
				}
				return b.String()
			}
			d.Fatalf(t, "unknown directive %s", d.Cmd)
			return ""
		})
	})
}

func describe(t *trace.Trace) string {
	var b strings.Builder
	at := func(x time.Time) string { return x.Sub(t.Start).String() }
	var tree func(nodes []*trace.Node, depth int)
	tree = func(nodes []*trace.Node, depth int) {
		for _, n := range nodes {
			fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", depth), n.Name)
			tree(n.Children, depth+1)
		}
	}
	tree(t.Roots, 0)
	fmt.Fprintf(&b, "ready=%v end=%s missing=%d\n", t.Ready, at(t.End), t.Missing)
	if !t.Running.IsZero() {
		fmt.Fprintf(&b, "running=%s\n", at(t.Running))
	}
	covered := t.Start
	for _, s := range t.Path {
		name := "?"
		if s.Span != nil {
			name = s.Span.Name
		}
		fmt.Fprintf(&b, "path %s..%s %s\n", at(s.Start), at(s.End), name)
		if !s.Start.Equal(covered) {
			fmt.Fprintf(&b, "HOLE before %s\n", at(s.Start))
		}
		covered = s.End
	}
	if len(t.Path) > 0 && !covered.Equal(t.End) {
		fmt.Fprintf(&b, "HOLE at the end\n")
	}
	for _, g := range t.Gaps {
		fmt.Fprintf(&b, "gap %s..%s\n", at(g.Start), at(g.End))
	}
	if w := t.LongestWait(); w != nil {
		name := "?"
		if w.Span != nil {
			name = w.Span.Name
		}
		fmt.Fprintf(&b, "longest wait %s %s\n", name, w.Time)
	}
	return b.String()
}

// TestFromOTLP reads an answer in the form that Jaeger v1.76 gives: ids in hexadecimal, zeros for no parent, numbers as strings.
func TestFromOTLP(t *testing.T) {
	const answer = `{"result":{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"scheduler"}}]},
	  "scopeSpans":[{"scope":{},"spans":[{"kind":2,"name":"foobar","spanId":"0000000000000002","parentSpanId":"0000000000000000",
	  "startTimeUnixNano":"1000000000","endTimeUnixNano":"1500000000","status":{"code":2,"message":"no"},
	  "attributes":[{"key":"i","value":{"intValue":"7"}},{"key":"l","value":{"arrayValue":{"values":[{"stringValue":"a"},{"boolValue":true}]}}},{"key":"d","value":{"doubleValue":0.5}}],
	  "links":[{"traceId":"0000000000000000000000000000000a","spanId":"000000000000000b"}],
	  "traceId":"00000000000000000000000000000001"},
	  {"name":"foobar","spanId":"0000000000000002","traceId":"00000000000000000000000000000001","status":{}}]}]}]}}`
	r, err := otlpjson.Decode([]byte(answer))
	if err != nil {
		t.Fatal(err)
	}
	want := []*trace.Span{{
		ID: "0000000000000002", Name: "foobar", Service: "scheduler", Start: time.Unix(1, 0), End: time.Unix(1, 500_000_000),
		Attributes: map[string]string{"i": "7", "l": "a,true", "d": "0.5"},
		Links:      []trace.Link{{Trace: "0000000000000000000000000000000a", Span: "000000000000000b"}},
		Failed:     true, Message: "no",
	}}
	if diff := cmp.Diff(want, trace.FromOTLP(r.Result)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if _, err := otlpjson.Decode([]byte("<html>")); err == nil {
		t.Error("a page was taken for traces")
	}
	if got := trace.FromOTLP(nil); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

func TestDocument(t *testing.T) {
	a := trace.Analyze(tracetext.Parse(t, `
a - apiserver CreatePod 0 2
b a scheduler queue_wait 2 50 trireme.queue=active
c a nodeagent Ready 100 100
`))
	got, err := json.Marshal(a.Document("01"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"traceId":"01","start":"2001-09-09T01:46:40Z","totalMs":100,"readyMs":100,"spans":[` +
		`{"id":"a","name":"CreatePod","service":"apiserver","startMs":0,"durationMs":2},` +
		`{"id":"b","parentId":"a","name":"queue wait","service":"scheduler","startMs":2,"durationMs":48,"wait":true,"attributes":{"trireme.queue":"active"}},` +
		`{"id":"c","parentId":"a","name":"Ready","service":"nodeagent","startMs":100,"durationMs":0}],` +
		`"criticalPath":[{"spanId":"a","name":"CreatePod","service":"apiserver","startMs":0,"durationMs":2},` +
		`{"spanId":"b","name":"queue wait","service":"scheduler","startMs":2,"durationMs":48},{"startMs":50,"durationMs":50}],` +
		`"longestWait":{"startMs":0,"durationMs":50},"gaps":[{"startMs":50,"durationMs":50}],"missingParents":0,"linkedTraces":[],"laterTraces":[]}`
	if string(got) != want {
		t.Errorf("document:\n got %s\nwant %s", got, want)
	}
}

func TestPercentile(t *testing.T) {
	of := []time.Duration{5, 1, 4, 2, 3}
	for p, want := range map[int]time.Duration{0: 1, 20: 1, 21: 2, 50: 3, 95: 5, 100: 5} {
		if got := trace.Percentile(of, p); got != want {
			t.Errorf("p%d is %d, want %d", p, got, want)
		}
	}
	if trace.Percentile(nil, 50) != 0 {
		t.Error("of none")
	}
}
