package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/storage"
)

const (
	added   = metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED
	deleted = metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED
)

// Random writers at two gateways, watchers with and without selectors that are cut off, resume at the other gateway, lag
// and hit compaction: what each was given, replayed, equals a list at its revision, at either gateway.
func TestReplayedStreamsEqualLists(t *testing.T) {
	for name, open := range engines(t) {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, open(t))
			n := seed(t)
			writing, stopWriting := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() { write(writing, t, c, rand.New(rand.NewPCG(n, uint64(i)))) })
			}
			wg.Go(func() { compact(writing, t, c, rand.New(rand.NewPCG(n, 100))) })
			watchers := make([]*replayer, 8)
			var following sync.WaitGroup
			var target atomic.Int64
			for i := range watchers {
				w := &replayer{t: t, cluster: c, random: rand.New(rand.NewPCG(n, uint64(200+i))), target: &target}
				w.selector = []string{"", "color=red", "color!=red", "app.kubernetes.io/name=x"}[i%4]
				if i >= 4 {
					w.fields = "metadata.namespace=default"
				}
				watchers[i] = w
				following.Go(func() { w.run(t.Context()) })
			}
			time.Sleep(3 * time.Second) // of writing
			stopWriting()
			wg.Wait()
			revision, err := c.store.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// Where to stop, and after it an event for each selector that wakes who waits.
			for i, color := range []string{"red", "red", "blue"} {
				obj := config(fmt.Sprint("last", i), color)
				obj.Metadata.Labels["app.kubernetes.io/name"] = "x"
				created, err := corev1.NewConfigMapServiceClient(c.conns[i%2]).Create(t.Context(), &corev1.CreateConfigMapRequest{Object: obj})
				if err != nil {
					t.Fatal(err)
				}
				target.CompareAndSwap(0, revisionOf(created))
			}
			following.Wait()
			cuts, expired, events := 0, 0, 0
			for _, w := range watchers {
				cuts, expired, events = cuts+w.cuts, expired+w.expired, events+w.events
			}
			t.Logf("%d revisions, %d events replayed, %d cuts, %d expired", revision, events, cuts, expired)
			if events == 0 || cuts == 0 {
				t.Error("the test has tested nothing")
			}
		})
	}
}

func revisionOf(m *corev1.ConfigMap) int64 {
	n, _ := strconv.ParseInt(m.GetMetadata().GetResourceVersion(), 10, 64) // a gateway wrote it
	return n
}

func config(name, color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"color": color}}}
}

func write(ctx context.Context, t *testing.T, c *cluster, random *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		maps := corev1.NewConfigMapServiceClient(c.conns[random.IntN(2)])
		obj := config(fmt.Sprint("m", random.IntN(12)), []string{"red", "blue"}[random.IntN(2)])
		obj.Data = map[string]string{"i": strconv.Itoa(i)}
		if random.IntN(3) == 0 {
			obj.Metadata.Labels["app.kubernetes.io/name"] = "x"
		}
		if random.IntN(40) == 0 {
			obj.Data["filler"] = strings.Repeat("x", 400<<10) // pushes history out of the caches
		}
		var err error
		switch random.IntN(4) {
		case 0:
			_, err = maps.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: obj.Metadata.Name})
		case 1:
			_, err = maps.Create(ctx, &corev1.CreateConfigMapRequest{Object: obj})
		default:
			_, err = maps.Update(ctx, &corev1.UpdateConfigMapRequest{Object: obj})
		}
		if err = apierr.FromStatus(err); err != nil && ctx.Err() == nil && !apierr.IsNotFound(err) && !apierr.IsAlreadyExists(err) && !apierr.IsConflict(err) {
			t.Errorf("write: %v", err)
			return
		}
	}
}

func compact(ctx context.Context, t *testing.T, c *cluster, random *rand.Rand) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(random.IntN(300)) * time.Millisecond):
		}
		revision, err := c.store.Revision(ctx)
		if err == nil {
			err = c.store.Compact(ctx, revision)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("compact: %v", err)
		}
	}
}

// replayer applies what a watch brings to an empty store.
type replayer struct {
	t                *testing.T
	cluster          *cluster
	random           *rand.Rand
	selector, fields string
	target           *atomic.Int64 // where to stop, once that is known

	state                 map[string]*corev1.ConfigMap
	position              int64 // complete up to here
	cuts, expired, events int
}

func (w *replayer) run(ctx context.Context) {
	for w.target.Load() == 0 || w.position < w.target.Load() {
		streamCtx, cancel := context.WithCancel(ctx)
		err := w.follow(streamCtx)
		cancel()
		switch {
		case err == nil:
			w.cuts++
		case apierr.IsExpired(err):
			w.expired++
			w.position = 0
		case apierr.IsConflict(err): // too slow, or the cache started over: resume
		default:
			w.t.Errorf("watch %q: %v", w.selector, err)
			return
		}
	}
	w.compare(ctx)
}

// follow reads one stream until it is done, or cuts it off.
func (w *replayer) follow(ctx context.Context) error {
	req := &metav1.WatchRequest{LabelSelector: w.selector, FieldSelector: w.fields}
	if w.position > 0 {
		req.ResourceVersion = strconv.FormatInt(w.position, 10)
	}
	stream, err := corev1.NewConfigMapServiceClient(w.cluster.conns[w.random.IntN(2)]).Watch(ctx, req)
	if err != nil {
		return apierr.FromStatus(err)
	}
	collecting := w.position == 0
	if collecting {
		w.state = map[string]*corev1.ConfigMap{}
	}
	var pending []*corev1.ConfigMapWatchEvent
	for left := 1 + w.random.IntN(60); ; left-- {
		target := w.target.Load()
		if target > 0 && w.position >= target || target == 0 && left <= 0 && !collecting {
			return nil
		}
		if w.random.IntN(20) == 0 && target == 0 {
			time.Sleep(time.Duration(w.random.IntN(150)) * time.Millisecond) // lags
		}
		resp, err := stream.Recv()
		if err != nil {
			return apierr.FromStatus(err)
		}
		if resp.GetRevision() < w.position {
			return fmt.Errorf("revision went back from %d to %d", w.position, resp.GetRevision())
		}
		pending = append(pending, resp.GetEvents()...)
		if resp.GetMore() || collecting && !resp.GetInitialEventsEnd() {
			continue
		}
		collecting = false
		for _, e := range pending {
			if err := w.apply(e); err != nil {
				return err
			}
		}
		pending, w.position = nil, resp.GetRevision()
	}
}

func (w *replayer) apply(e *corev1.ConfigMapWatchEvent) error {
	w.events++
	name := e.GetObject().GetMetadata().GetName()
	old, known := w.state[name]
	switch {
	case known == (e.GetType() == added):
		return fmt.Errorf("%v of %s at %s, known: %v", e.GetType(), name, e.GetObject().GetMetadata().GetResourceVersion(), known)
	case known && revisionOf(e.GetObject()) <= revisionOf(old):
		return fmt.Errorf("%s at %d after %d", name, revisionOf(e.GetObject()), revisionOf(old))
	case e.GetType() == deleted:
		delete(w.state, name)
	default:
		w.state[name] = e.GetObject()
	}
	return nil
}

func (w *replayer) compare(ctx context.Context) {
	for i, conn := range w.cluster.conns {
		stream, err := corev1.NewConfigMapServiceClient(conn).List(ctx, &metav1.ListRequest{
			LabelSelector: w.selector, FieldSelector: w.fields,
			ResourceVersion: strconv.FormatInt(w.position, 10), ResourceVersionMatch: "Exact",
		})
		if err != nil {
			w.t.Error(err)
			return
		}
		n := 0
		for {
			chunk, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				w.t.Errorf("list %q at %d: %v", w.selector, w.position, err)
				return
			}
			for _, want := range chunk.GetItems() {
				n++
				if got := w.state[want.GetMetadata().GetName()]; !proto.Equal(got, want) {
					w.t.Errorf("%q at %d, gateway %d: replayed %v, listed %v", w.selector, w.position, i, got.GetMetadata(), want.GetMetadata())
				}
			}
		}
		if n != len(w.state) {
			w.t.Errorf("%q at %d, gateway %d: replayed %d objects, listed %d", w.selector, w.position, i, len(w.state), n)
		}
	}
}
