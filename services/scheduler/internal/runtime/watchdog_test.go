package runtime

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// sleeper is a Filter that takes its time.
type sleeper struct{ took time.Duration }

func (sleeper) Name() string { return "Sleeper" }
func (s sleeper) Filter(*framework.CycleState, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	time.Sleep(s.took)
	return nil
}

// TestBlockedPluginIsReported: one that blocks is named once in a while with its pod, one that is merely slow is not.
func TestBlockedPluginIsReported(t *testing.T) {
	for _, tc := range []struct {
		took    time.Duration
		reports int
	}{{9 * time.Second, 0}, {time.Minute, 1}} {
		synctest.Test(t, func(t *testing.T) {
			var events []string
			h := build(t, &spy{name: "A"})
			f, err := New(framework.Profile{Plugins: []framework.Registration{
				{New: framework.Use(h.sort)}, {New: framework.Use(sleeper{tc.took})}, {New: framework.Use(h.bind[0]), Weight: 1},
			}}, Deps{Event: func(_ client.Object, _, reason, message string) { events = append(events, reason+": "+message) }})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- f.Watch(ctx, slog.New(slog.NewTextHandler(&log, nil))) }()
			snapshot, err := framework.NewSnapshot([]*corev1.Node{{Metadata: &metav1.ObjectMeta{Name: "n"}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var v framework.Verdicts
			v.Reset(snapshot.Nodes())
			f.Begin(&framework.PodInfo{Pod: &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p"}}})
			if _, st := f.RunFilterPass(framework.NewCycleState(), h.pod, snapshot.Columns(), []int32{0}, &v); !st.IsSuccess() {
				t.Fatal(st)
			}
			f.End()
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if len(events) != tc.reports || strings.Count(log.String(), "plugin=Sleeper") != tc.reports || strings.Count(log.String(), "pod=ns/p") != tc.reports {
				t.Errorf("after %s: events %v, log %s, want %d reports", tc.took, events, log.String(), tc.reports)
			}
		})
	}
}
