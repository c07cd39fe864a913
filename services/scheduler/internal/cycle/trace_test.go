package cycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"trireme.dev/kit/telemetry/telemetrytest"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/queue"
)

// BenchmarkTraceOfGang is what it costs to tell the traces of all members of a gang of one attempt: beside the cycle, not
// in it.
func BenchmarkTraceOfGang(b *testing.B) {
	const members = 1000
	r := telemetrytest.RecordSpans(b, nil)
	w := newWorld(b)
	for i := range 100 {
		w.cache.SetNode(scriptNode(b, fmt.Sprintf("n%03d", i), []datadriven.CmdArg{{Key: "cpu", Vals: []string{"64"}}, {Key: "memory", Vals: []string{"256Gi"}}}))
	}
	if err := w.cache.Update(&w.snapshot); err != nil {
		b.Fatal(err)
	}
	q := gang("g", members, 0)
	for i := range members {
		p := scriptPod(b, fmt.Sprint(i), nil)
		p.Metadata.TraceContext = fmt.Sprintf("00-%032x-%016x-01", i+1, i+1)
		q.Pods = append(q.Pods, info(b, p))
	}
	c := &Cycle{counters: newCounters("default-scheduler")}
	c.watch.Measure = func(*framework.PodInfo) bool { return true }
	a := &attempt{Queued: q, begun: time.Now()}
	for _, p := range q.Pods {
		a.histories = append(a.histories, queue.History{Pod: p, Stays: []queue.Stay{{Part: queue.PartActive, From: a.begun, To: a.begun}}})
	}
	if d := w.decider.Decide(b.Context(), q, &c.watch); len(d.Placed) != members {
		b.Fatalf("%d placed", len(d.Placed))
	}
	c.over(a)
	b.Run("over", func(b *testing.B) {
		for b.Loop() {
			c.over(a)
		}
	})
	b.Run("tell", func(b *testing.B) {
		for b.Loop() {
			a.tell(nil, nil)
		}
	})
	a.tell(nil, nil)
	if n := len(r.Ended()); n < members*6 {
		b.Errorf("%d spans, want at least six for each member", n)
	}
}
