package event_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"trireme.dev/client/apierr"
	"trireme.dev/client/event"
	"trireme.dev/client/internal/gatewaytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name string) *corev1.Pod {
	return &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Uid: "u-" + name, ResourceVersion: "7"}}
}

func inBubble(t *testing.T, body func(t *testing.T, g *gatewaytest.Gateway, r *event.Recorder)) {
	synctest.Test(t, func(t *testing.T) {
		g := gatewaytest.New(t)
		r := event.NewRecorder(g.Conn(t), "trireme-scheduler")
		r.Logger = slog.New(slog.DiscardHandler)
		body(t, g, r)
	})
}

func run(t *testing.T, r *event.Recorder) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func events(g *gatewaytest.Gateway) map[string]*corev1.Event {
	found := map[string]*corev1.Event{}
	for _, o := range g.Objects(&corev1.Event{}) {
		e, _ := o.(*corev1.Event)
		found[e.GetInvolvedObject().GetName()+" "+e.GetReason()+" "+e.GetMessage()] = e
	}
	return found
}

func TestRepeatsRaiseTheCount(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gatewaytest.Gateway, r *event.Recorder) {
		run(t, r)
		start := time.Now()
		for range 3 {
			r.Event(pod("a"), event.Warning, "FailedScheduling", "0/4 nodes are available")
			time.Sleep(time.Minute)
		}
		r.Event(pod("b"), event.Warning, "FailedScheduling", "0/4 nodes are available")
		r.Event(pod("a"), event.Normal, "Scheduled", "on n1")
		time.Sleep(time.Second) // the second of them may have come after the batch of the first
		synctest.Wait()
		found := events(g)
		if len(found) != 3 {
			t.Fatalf("%d events, want 3: %v", len(found), found)
		}
		e := found["a FailedScheduling 0/4 nodes are available"]
		if e.GetCount() != 3 || e.GetType() != "Warning" {
			t.Errorf("count %d, type %s", e.GetCount(), e.GetType())
		}
		if first, last := e.GetFirstTimestamp().AsTime(), e.GetLastTimestamp().AsTime(); !first.Equal(start) || last.Sub(first) != 2*time.Minute {
			t.Errorf("first %s, last %s", first, last)
		}
		about := e.GetInvolvedObject()
		if about.GetKind() != "Pod" || about.GetApiVersion() != "v1" || about.GetNamespace() != "ns" || about.GetUid() != "u-a" || about.GetResourceVersion() != "7" {
			t.Errorf("about %v", about)
		}
		if e.GetSource().GetComponent() != "trireme-scheduler" || e.GetMetadata().GetNamespace() != "ns" || !strings.HasPrefix(e.GetMetadata().GetName(), "a.") {
			t.Errorf("event %v", e)
		}
		// What happened long ago is not counted up.
		time.Sleep(time.Hour)
		r.Event(pod("a"), event.Normal, "Scheduled", "on n1")
		synctest.Wait()
		if n := len(g.Objects(&corev1.Event{})); n != 4 {
			t.Errorf("%d events, want 4", n)
		}
	})
}

func TestDeletedEventBeginsAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gatewaytest.Gateway, r *event.Recorder) {
		run(t, r)
		r.Event(pod("a"), event.Normal, "Pulled", "x")
		synctest.Wait()
		g.Remove(g.Objects(&corev1.Event{})...)
		r.Event(pod("a"), event.Normal, "Pulled", "x")
		time.Sleep(time.Second)
		synctest.Wait()
		if e := events(g)["a Pulled x"]; e.GetCount() != 1 {
			t.Errorf("event %v", e)
		}
	})
}

func TestClusterScopedObject(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gatewaytest.Gateway, r *event.Recorder) {
		r.Host = "n1"
		run(t, r)
		r.Event(&corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n1"}}, event.Normal, "Starting", strings.Repeat("ä", 2000))
		synctest.Wait()
		for _, e := range events(g) {
			if e.GetMetadata().GetNamespace() != "default" || e.GetSource().GetHost() != "n1" || len(e.GetMessage()) > 1024 {
				t.Errorf("event %v", e)
			}
			return
		}
		t.Error("no event")
	})
}

func TestGatewayAwayForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gatewaytest.Gateway, r *event.Recorder) {
		run(t, r)
		g.Down()
		r.Event(pod("a"), event.Normal, "Pulled", "x")
		time.Sleep(2 * time.Second)
		g.Up()
		time.Sleep(time.Minute)
		if len(events(g)) != 1 || r.Dropped() != 0 {
			t.Errorf("events %v, %d dropped", events(g), r.Dropped())
		}
	})
}

func TestNeverBlocksAndCountsWhatIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gatewaytest.Gateway, r *event.Recorder) {
		const fit, more = 1 << 14, 500
		for i := range fit + more { // Nothing reads the queue: a blocking recorder would hang here.
			r.Event(pod(fmt.Sprint("p", i)), event.Normal, "Pulled", "x")
		}
		if r.Dropped() != more {
			t.Errorf("%d dropped, want %d", r.Dropped(), more)
		}
	})
}

func TestWhatWaitsIsWrittenOnTheWayOut(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gatewaytest.Gateway, r *event.Recorder) {
		const n = 500
		for i := range n {
			r.Event(pod(fmt.Sprint("p", i)), event.Normal, "Pulled", "x")
		}
		run(t, r)()
		if written := len(g.Objects(&corev1.Event{})); written != n || r.Dropped() != 0 {
			t.Errorf("%d events written and %d dropped, want %d written", written, r.Dropped(), n)
		}
	})
}

func TestRefusedEventIsDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gatewaytest.Gateway, r *event.Recorder) {
		run(t, r)
		g.Refuse(apierr.Forbidden("Event", "", "the namespace is terminating"))
		r.Event(pod("a"), event.Normal, "Killing", "x")
		synctest.Wait()
		if r.Dropped() != 1 || g.Calls("Create") != 1 {
			t.Errorf("%d dropped after %d tries, want one each", r.Dropped(), g.Calls("Create"))
		}
	})
}

func TestEndsInTimeWithoutAGateway(t *testing.T) {
	inBubble(t, func(t *testing.T, g *gatewaytest.Gateway, r *event.Recorder) {
		stop := run(t, r)
		g.Down()
		for i := range 100 {
			r.Event(pod(fmt.Sprint("p", i)), event.Normal, "Pulled", "x")
		}
		stopped := time.Now()
		stop()
		if took := time.Since(stopped); took > 3*time.Second || r.Dropped() != 100 {
			t.Errorf("ended after %s, %d dropped", took, r.Dropped())
		}
	})
}
