package status

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

type fixture struct {
	*testing.T
	gateway *apitest.Server
	pods    *client.Resource[*corev1.Pod]
	m       *Manager

	mu      sync.Mutex
	written int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, gateway: apitest.New(t)}
	f.pods = client.For[*corev1.Pod](f.gateway.Conn())
	f.m = New(f.gateway.Conn(), slog.New(slog.DiscardHandler), func(string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.written++
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) create() *corev1.Pod {
	f.Helper()
	p, err := f.pods.Create(f.Context(), &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec:     &corev1.PodSpec{NodeName: proto.String("n"), Containers: []*corev1.Container{{Name: "c", Image: "i:1"}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	return p
}

func (f *fixture) get() *corev1.Pod {
	f.Helper()
	p, err := f.pods.Get(f.Context(), "default", "p")
	if err != nil {
		f.Fatal(err)
	}
	return p
}

func TestTheLatestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		p := f.create()
		for _, message := range []string{"1", "2", "3", "4"} {
			f.m.Set(t.Context(), p, &corev1.PodStatus{Phase: "Pending", Message: message})
		}
		synctest.Wait()
		if got := f.get().GetStatus().GetMessage(); got != "4" {
			t.Errorf("message %q", got)
		}
		if !f.m.Flushed(p.GetMetadata().GetUid()) || f.written == 0 {
			t.Error("the writer does not say that it is done")
		}
		rv := f.get().GetMetadata().GetResourceVersion()
		f.m.Set(t.Context(), p, &corev1.PodStatus{Phase: "Pending", Message: "4"})
		synctest.Wait()
		if got := f.get().GetMetadata().GetResourceVersion(); got != rv {
			t.Error("an unchanged status was written")
		}
	})
}

func TestOthersConditionSurvivesAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		p := f.create()
		if _, err := f.pods.Patch(t.Context(), "default", "p", metav1.PatchType_PATCH_TYPE_MERGE,
			[]byte(`{"status":{"conditions":[{"type":"PodScheduled","status":"True","message":"by the scheduler"}],"nominatedNodeName":"other"}}`), "status"); err != nil {
			t.Fatal(err)
		}
		// The manager knows the pod as it was before the scheduler's write.
		f.m.Set(t.Context(), p, &corev1.PodStatus{Phase: "Running", Conditions: []*corev1.PodCondition{
			{Type: "Ready", Status: "True"}, {Type: "PodScheduled", Status: "True"},
		}})
		synctest.Wait()
		got := f.get().GetStatus()
		var messages []string
		for _, c := range got.GetConditions() {
			messages = append(messages, c.GetType()+":"+c.GetMessage())
		}
		if s := strings.Join(messages, " "); s != "Ready: PodScheduled:by the scheduler" {
			t.Errorf("conditions %s", s)
		}
		if got.GetPhase() != "Running" || got.GetNominatedNodeName() != "other" {
			t.Errorf("status %v", got)
		}
	})
}

func TestTerminalPhaseOfTheGatewayStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		p := f.create()
		if _, err := f.pods.Patch(t.Context(), "default", "p", metav1.PatchType_PATCH_TYPE_MERGE,
			[]byte(`{"status":{"phase":"Failed","reason":"Evicted"}}`), "status"); err != nil {
			t.Fatal(err)
		}
		f.m.Set(t.Context(), p, &corev1.PodStatus{Phase: "Running"})
		synctest.Wait()
		if got := f.get().GetStatus(); got.GetPhase() != "Failed" || got.GetReason() != "Evicted" {
			t.Errorf("status %v", got)
		}
	})
}

func TestGatewayAwayThenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		p := f.create()
		uid := p.GetMetadata().GetUid()
		f.gateway.SetFault(func(apitest.Operation) error { return apitest.ErrUnavailable })
		f.m.Set(t.Context(), p, &corev1.PodStatus{Phase: "Running", Message: "while away"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if f.m.Flushed(uid) {
			t.Fatal("flushed without a gateway")
		}
		f.gateway.SetFault(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := f.get().GetStatus().GetMessage(); got != "while away" || !f.m.Flushed(uid) {
			t.Errorf("message %q", got)
		}
	})
}

func TestRemoveComesAfterTheLastStatusAndKnowsItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		p := f.create()
		w, err := f.pods.Watch(t.Context(), client.WatchOptions{Namespace: "default"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		f.m.Set(t.Context(), p, &corev1.PodStatus{Phase: "Failed", Message: "last"})
		f.m.Remove(t.Context(), p)
		for {
			response, err := w.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if n := len(response.Events); n > 0 && response.Events[n-1].Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
				if got := response.Events[n-1].Object.GetStatus().GetMessage(); got != "last" {
					t.Errorf("removed with message %q", got)
				}
				break
			}
		}
		// Another pod of the name is none of its business.
		next := f.create()
		f.m.Forget(p.GetMetadata().GetUid())
		f.m.Set(t.Context(), p, &corev1.PodStatus{Phase: "Running", Message: "stale"})
		f.m.Remove(t.Context(), p)
		synctest.Wait()
		got, err := f.pods.Get(t.Context(), "default", "p")
		if apierr.IsNotFound(err) || got.GetMetadata().GetUid() != next.GetMetadata().GetUid() || got.GetStatus().GetMessage() != "" {
			t.Errorf("got %v %v", got, err)
		}
		if !f.m.Flushed(p.GetMetadata().GetUid()) {
			t.Error("a pod that is gone still waits to be written")
		}
	})
}
