package informer_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/informer"
	"trireme.dev/client/internal/gatewaytest"
	"trireme.dev/client/kind"
	"trireme.dev/client/selector"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func configMap(name, value string, labels ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{}},
		Data:     map[string]string{"v": value},
	}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		c.Metadata.Labels[k] = v
	}
	return c
}

// recorder writes down what a handler hears.
type recorder struct {
	mu    sync.Mutex
	heard []string
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, fmt.Sprintf(format, args...))
}

// take returns what was heard since the last take.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard := r.heard
	r.heard = nil
	return heard
}

func (r *recorder) handler() informer.Handler[*corev1.ConfigMap] {
	return informer.Handler[*corev1.ConfigMap]{
		Add: func(o *corev1.ConfigMap, initial bool) {
			word := "add"
			if initial {
				word = "initial"
			}
			r.note("%s %s=%s", word, o.GetMetadata().GetName(), o.GetData()["v"])
		},
		Update: func(before, after *corev1.ConfigMap) {
			r.note("update %s=%s>%s", after.GetMetadata().GetName(), before.GetData()["v"], after.GetData()["v"])
		},
		Delete: func(last *corev1.ConfigMap) {
			r.note("delete %s=%s", last.GetMetadata().GetName(), last.GetData()["v"])
		},
	}
}

func (r *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	got := r.take()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("heard %q\nwant  %q", got, want)
	}
}

// world is a gateway, and one informer of it that runs in the bubble of the test.
type world struct {
	gateway  *gatewaytest.Gateway
	conn     *grpc.ClientConn
	factory  *informer.Factory
	informer *informer.Informer[*corev1.ConfigMap]
	recorder *recorder
	log      *strings.Builder
}

// inWorld runs body in a bubble of virtual time. The factory runs once body calls start.
func inWorld(t *testing.T, body func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{gateway: gatewaytest.New(t), recorder: &recorder{}, log: &strings.Builder{}}
		w.conn = w.gateway.Conn(t)
		w.factory = informer.NewFactory(w.conn, slog.New(slog.NewTextHandler(w.log, nil)))
		w.informer = informer.Of[*corev1.ConfigMap](w.factory, informer.Config{})
		w.informer.AddHandler(w.recorder.handler())
		body(t, w)
	})
}

func (w *world) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.factory.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func (w *world) startAndSync(t *testing.T) {
	t.Helper()
	w.start(t)
	if err := w.factory.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// settle lets everything happen that time brings within a minute.
func settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

func names(objects []*corev1.ConfigMap) string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetMetadata().GetName())
	}
	return strings.Join(all, " ")
}

func TestInitialStateThenChanges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gateway.Put(configMap("a", "1"), configMap("b", "1"), configMap("c", "1"))
		if w.informer.HasSynced() || w.informer.Revision() != 0 {
			t.Error("synced before it ran")
		}
		w.startAndSync(t)
		w.recorder.expect(t, "initial a=1", "initial b=1", "initial c=1")

		w.gateway.Put(configMap("a", "2"))
		w.gateway.Put(configMap("d", "1"))
		revision := w.gateway.Remove(configMap("b", "1"))
		if err := w.informer.WaitForRevision(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		if got := names(w.informer.Lister().List("", nil)); got != "a c d" {
			t.Errorf("the lister has %q at revision %d", got, revision)
		}
		settle()
		w.recorder.expect(t, "update a=1>2", "add d=1", "delete b=1")
	})
}

func TestBookmarkMovesTheRevision(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.startAndSync(t)
		revision := w.gateway.Bookmark()
		if err := w.informer.WaitForRevision(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.informer.WaitForRevision(ctx, revision+1); err == nil {
			t.Error("waited for a revision that was never reached, and got it")
		}
	})
}

func TestReconnectLosesAndDoublesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gateway.Put(configMap("a", "1"), configMap("b", "1"))
		w.startAndSync(t)
		w.recorder.take()
		w.gateway.CutStreams()
		w.gateway.Put(configMap("a", "2"))
		w.gateway.Put(configMap("a", "3"), configMap("c", "1"))
		w.gateway.Remove(configMap("b", ""))
		settle()
		// Every step is heard of, and in its own right: the watch resumed and did not begin anew.
		w.recorder.expect(t, "update a=1>2", "update a=2>3", "add c=1", "delete b=1")
	})
}

func TestStreamCutInsideARevision(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.startAndSync(t)
		w.gateway.CutInside(2)
		revision := w.gateway.Put(configMap("a", "1"), configMap("b", "1"), configMap("c", "1"), configMap("d", "1"), configMap("e", "1"))
		settle()
		if n := len(w.informer.Lister().List("", nil)); n != 0 {
			t.Errorf("%d objects of a half-sent revision are visible", n)
		}
		if w.informer.Revision() >= revision {
			t.Error("the informer claims a revision that it has only half of")
		}
		w.recorder.expect(t)
		w.gateway.CutInside(0)
		settle()
		w.recorder.expect(t, "add a=1", "add b=1", "add c=1", "add d=1", "add e=1")
	})
}

func TestInitialStateCutInTheMiddle(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gateway.Put(configMap("a", "1"), configMap("b", "1"), configMap("c", "1"))
		w.gateway.CutInside(2)
		w.start(t)
		settle()
		if w.informer.HasSynced() {
			t.Error("synced on half of the state")
		}
		w.gateway.CutInside(0)
		settle()
		w.recorder.expect(t, "initial a=1", "initial b=1", "initial c=1")
	})
}

func TestDeletionMissedWhileDisconnected(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gateway.Put(configMap("gone", "last words"), configMap("kept", "1"), configMap("changed", "1"), configMap("reborn", "old"))
		w.startAndSync(t)
		w.recorder.take()
		w.gateway.Down()
		synctest.Wait()
		w.gateway.Remove(configMap("gone", ""), configMap("reborn", ""))
		w.gateway.Put(configMap("new", "1"), configMap("changed", "2"), configMap("reborn", "new"))
		w.gateway.Compact() // What happened cannot be replayed.
		if _, ok := w.informer.Lister().Get("default", "gone"); !ok {
			t.Error("the copy was emptied while disconnected")
		}
		w.gateway.Up()
		settle()
		w.recorder.expect(t, "delete gone=last words", "update changed=1>2", "add new=1", "delete reborn=old", "add reborn=new")
		if got := names(w.informer.Lister().List("", nil)); got != "changed kept new reborn" {
			t.Errorf("the lister has %q", got)
		}
	})
}

func TestGatewayDownAtStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gateway.Put(configMap("a", "1"))
		w.gateway.Down()
		w.start(t)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if w.informer.HasSynced() {
			t.Error("synced without a gateway")
		}
		w.gateway.Up()
		settle()
		w.recorder.expect(t, "initial a=1")
		lost, restored := strings.Count(w.log.String(), "watch lost"), strings.Count(w.log.String(), "watch restored")
		if lost != 1 || restored != 1 {
			t.Errorf("logged %d losses and %d recoveries, want one each:\n%s", lost, restored, w.log)
		}
	})
}

func TestBackOffWhileRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gateway.Refuse(apierr.Forbidden("ConfigMap", "", "not you"))
		w.start(t)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		// Waits are at most 30 s and half of that on average: 40 tries, give or take what chance does.
		if n := w.gateway.Calls("Watch"); n < 20 || n > 90 {
			t.Errorf("%d tries in 10 minutes", n)
		}
	})
}

func TestExpiredDuringResyncKeepsTrying(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gateway.Put(configMap("a", "1"))
		w.startAndSync(t)
		w.recorder.take()
		w.gateway.Refuse(apierr.Expired("compacted"))
		w.gateway.CutStreams()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := w.gateway.Calls("Watch"); n > 90 {
			t.Errorf("%d tries in 10 minutes: that spins", n)
		}
		w.gateway.Put(configMap("a", "2"))
		w.gateway.Refuse(nil)
		settle()
		w.recorder.expect(t, "update a=1>2")
	})
}

func TestLateHandlerHearsOfThePresentOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.gateway.Put(configMap("a", "1"))
		w.startAndSync(t)
		w.gateway.Put(configMap("b", "1"))
		settle()
		late := &recorder{}
		registration := w.informer.AddHandler(late.handler())
		w.gateway.Put(configMap("c", "1"))
		settle()
		if !registration.HasSynced() {
			t.Error("the late handler never synced")
		}
		late.expect(t, "initial a=1", "initial b=1", "add c=1")
		w.recorder.expect(t, "initial a=1", "add b=1", "add c=1")
	})
}

func TestSlowHandlerHoldsNobodyUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		release, heard := make(chan struct{}), 0
		w.informer.AddHandler(informer.Handler[*corev1.ConfigMap]{Add: func(*corev1.ConfigMap, bool) {
			<-release
			heard++
		}})
		w.start(t)
		synctest.Wait()
		for i := range 500 {
			w.gateway.Put(configMap(fmt.Sprint("o", i), "1"))
		}
		settle()
		if n := len(w.informer.Lister().List("", nil)); n != 500 {
			t.Errorf("the store has %d objects", n)
		}
		if n := len(w.recorder.take()); n != 500 {
			t.Errorf("the quick handler heard of %d objects", n)
		}
		close(release)
		settle()
		if heard != 500 {
			t.Errorf("the slow handler heard of %d objects", heard)
		}
	})
}

func TestStoreIsUpdatedBeforeHandlers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		seen := make(chan string, 10)
		lister := w.informer.Lister()
		w.informer.AddHandler(informer.Handler[*corev1.ConfigMap]{
			Add: func(o *corev1.ConfigMap, _ bool) {
				stored, _ := lister.Get("default", o.GetMetadata().GetName())
				seen <- stored.GetData()["v"]
			},
			Delete: func(o *corev1.ConfigMap) {
				_, ok := lister.Get("default", o.GetMetadata().GetName())
				seen <- fmt.Sprint(ok)
			},
		})
		w.startAndSync(t)
		w.gateway.Put(configMap("a", "1"))
		if got := <-seen; got != "1" {
			t.Errorf("at Add the lister had %q", got)
		}
		w.gateway.Remove(configMap("a", ""))
		if got := <-seen; got != "false" {
			t.Error("at Delete the lister had the object still")
		}
	})
}

func TestIndexesAndSelectors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lister := w.informer.Lister()
		w.informer.AddIndex("value", func(o *corev1.ConfigMap) []string { return strings.Split(o.GetData()["v"], ",") })
		other := configMap("z", "x", "tier=front")
		other.Metadata.Namespace = "other"
		w.gateway.Put(configMap("a", "x,y", "tier=front"), configMap("b", "y", "tier=back"), other)
		w.startAndSync(t)
		check := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		front, err := selector.ParseLabels("tier=front")
		if err != nil {
			t.Fatal(err)
		}
		check("x", names(lister.ByIndex("value", "x")), "a z")
		check("y", names(lister.ByIndex("value", "y")), "a b")
		check("front", names(lister.List("", front)), "a z")
		check("front in default", names(lister.List("default", front)), "a")
		check("other", names(lister.List("other", nil)), "z")
		check("nowhere", names(lister.List("nowhere", nil)), "")

		revision := w.gateway.Put(configMap("a", "y"))
		if err := w.informer.WaitForRevision(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		check("x after the update", names(lister.ByIndex("value", "x")), "z")
		w.informer.AddIndex("late", func(o *corev1.ConfigMap) []string { return []string{o.GetMetadata().GetNamespace()} })
		check("late", names(lister.ByIndex("late", "default")), "a b")
		w.gateway.Remove(configMap("a", ""))
		revision = w.gateway.Bookmark()
		if err := w.informer.WaitForRevision(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
		check("late after the deletion", names(lister.ByIndex("late", "default")), "b")
	})
}

func TestInformersAreShared(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if informer.Of[*corev1.ConfigMap](w.factory, informer.Config{}) != w.informer {
			t.Error("two informers of one kind and config")
		}
		if informer.Of[*corev1.ConfigMap](w.factory, informer.Config{Namespace: "other"}) == w.informer {
			t.Error("one informer for two configs")
		}
		w.gateway.Put(configMap("a", "1"))
		w.startAndSync(t)
		// One asked for while the factory runs starts at once.
		secrets := informer.Of[*corev1.Secret](w.factory, informer.Config{Namespace: "default"})
		w.gateway.Put(&corev1.Secret{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "s"}})
		if err := w.factory.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		settle()
		if _, ok := secrets.Lister().Get("default", "s"); !ok {
			t.Error("the late informer has no objects")
		}
		if n := w.gateway.Calls("Watch"); n != 3 {
			t.Errorf("%d watches for 3 informers", n)
		}
	})
}

func TestInformerOfAKindKnownAtRunTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k, ok := kind.Builtin().ByManifest("v1", "ConfigMap")
		if !ok {
			t.Fatal("no ConfigMap")
		}
		dynamic := informer.OfKind(w.factory, k, informer.Config{})
		w.gateway.Put(configMap("a", "1"))
		w.startAndSync(t)
		if o, ok := dynamic.Lister().Get("default", "a"); !ok || o.GetMetadata().GetUid() == "" {
			t.Errorf("got %v", o)
		}
		if informer.OfKind(w.factory, k, informer.Config{}) != dynamic {
			t.Error("two informers of one kind and config")
		}
		w.recorder.expect(t, "initial a=1") // The typed informer of the same kind is its own.
	})
}

// TestRandomDisturbance changes objects at random while the gateway misbehaves at random. In the end the copy must be
// what the gateway has, and what the handler heard must lead there without one contradiction.
func TestRandomDisturbance(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) { disturb(t, w, seed) })
		})
	}
}

func sameObjects(t *testing.T, what string, got map[string]*corev1.ConfigMap, want []client.Object) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d objects, want %d", what, len(got), len(want))
	}
	for _, o := range want {
		if !proto.Equal(got[o.GetMetadata().GetName()], o) {
			t.Errorf("%s: %v\nwant %v", what, got[o.GetMetadata().GetName()], o)
		}
	}
}
