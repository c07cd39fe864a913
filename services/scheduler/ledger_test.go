package scheduler

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// room is what a node has.
type room struct{ milliCPU, gpus int64 }

func (r *room) charge(pod *corev1.Pod, sign int64) {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		panic(err) // the tests' own pods
	}
	r.milliCPU += sign * info.Request.MilliCPU
	r.gpus += sign * info.Request.Scalar["nvidia.com/gpu"]
}

// ledger follows pods revision by revision and holds that at each of them no node has more than it can take, no pod has
// changed its node, and no gang is bound in part: a member is bound only together with, or after, as many as the gang needs.
type ledger struct {
	t        *testing.T
	conn     grpc.ClientConnInterface
	capacity func(node string) room
	minCount int

	mu     sync.Mutex
	pods   map[string]*corev1.Pod // by uid
	used   map[string]*room
	fresh  map[string]bool // gangs with members bound at the present revision
	wrong  []string
	marker chan struct{}
}

// keepLedger watches until the test ends. minCount is that of all gangs.
func keepLedger(t *testing.T, conn grpc.ClientConnInterface, minCount int, capacity func(node string) room) *ledger {
	l := &ledger{
		t: t, conn: conn, capacity: capacity, minCount: minCount,
		pods: map[string]*corev1.Pod{}, used: map[string]*room{}, fresh: map[string]bool{}, marker: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	watch, err := client.For[*corev1.Pod](conn).Watch(ctx, client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer watch.Close()
		for {
			r, err := watch.Recv()
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("ledger: %v", err)
				}
				return
			}
			l.take(r)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return l
}

func (l *ledger) take(r *client.Response[*corev1.Pod]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	revision := ""
	for _, e := range r.Events {
		pod, meta := e.Object, e.Object.GetMetadata()
		if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
			l.verify(revision)
			l.put(l.pods[meta.GetUid()], nil)
			delete(l.pods, meta.GetUid())
			continue
		}
		if rv := meta.GetResourceVersion(); rv != revision {
			l.verify(revision)
			revision = rv
		}
		before := l.pods[meta.GetUid()]
		l.put(before, pod)
		l.pods[meta.GetUid()] = pod
		if meta.GetName() == "marker" {
			close(l.marker)
		}
		was, is := before.GetSpec().GetNodeName(), pod.GetSpec().GetNodeName()
		if was != "" && was != is {
			l.complain("pod %s went from node %s to %s", meta.GetName(), was, is)
		}
		if gang := pod.GetSpec().GetSchedulingGroup().GetPodGroupName(); gang != "" && was == "" && is != "" {
			l.fresh[gang] = true
		}
	}
	if !r.More {
		l.verify(revision)
	}
}

func (l *ledger) put(before, after *corev1.Pod) {
	for pod, sign := range map[*corev1.Pod]int64{before: -1, after: 1} {
		node := pod.GetSpec().GetNodeName()
		if node == "" {
			continue
		}
		if l.used[node] == nil {
			l.used[node] = &room{}
		}
		l.used[node].charge(pod, sign)
	}
}

func (l *ledger) verify(revision string) {
	for node, used := range l.used {
		if have := l.capacity(node); used.milliCPU > have.milliCPU || used.gpus > have.gpus {
			l.complain("revision %s: node %s has %+v and is given %+v", revision, node, have, *used)
		}
	}
	for gang := range l.fresh {
		n := 0
		for _, p := range l.pods {
			if p.GetSpec().GetSchedulingGroup().GetPodGroupName() == gang && p.GetSpec().GetNodeName() != "" {
				n++
			}
		}
		if n < l.minCount {
			l.complain("revision %s: %d pods of gang %s are bound, it needs %d", revision, n, gang, l.minCount)
		}
	}
	clear(l.fresh)
}

func (l *ledger) complain(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// check waits until all that has happened is in the ledger, fails the test where something was wrong, and returns the pods
// and what is left of the nodes that have been used.
func (l *ledger) check(ctx context.Context) (pods map[string]*corev1.Pod, used map[string]*room) {
	l.t.Helper()
	marker := pod("marker", func(s *corev1.PodSpec) { s.SchedulerName = proto.String("none") })
	if _, err := client.For[*corev1.Pod](l.conn).Create(ctx, marker); err != nil && !apierr.IsAlreadyExists(err) {
		l.t.Fatal(err)
	}
	<-l.marker
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, wrong := range l.wrong {
		if i == 10 {
			l.t.Errorf("and %d more", len(l.wrong)-i)
			break
		}
		l.t.Error(wrong)
	}
	return l.pods, l.used
}
