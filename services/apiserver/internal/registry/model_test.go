package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

// A watcher may be cut off at any response and resume from the last complete revision. Whatever it has been given,
// replayed, must equal a list at the same revision: nothing lost, doubled or reordered.
func TestReplayedWatchEqualsList(t *testing.T) {
	s := apitest.New(t)
	maps := corev1.NewConfigMapServiceClient(s.Conn())
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		h := &history{
			rt: rt, server: s, maps: maps, namespace: fmt.Sprint("round-", round),
			selector: rapid.SampledFrom([]string{"", "color=red", "color!=red"}).Draw(rt, "selector"),
		}
		h.run(t.Context())
	})
}

var filler = strings.Repeat("x", 300<<10)

type history struct {
	rt        *rapid.T
	server    *apitest.Server
	maps      corev1.ConfigMapServiceClient
	namespace string
	selector  string

	state    map[string]*corev1.ConfigMap // replayed, by name
	position int64                        // complete up to here
	pending  []*corev1.ConfigMapWatchEvent
	cancel   context.CancelFunc
	stream   grpc.ServerStreamingClient[corev1.ConfigMapWatchResponse]
}

func (h *history) check(err error) {
	if err != nil {
		h.rt.Fatal(err)
	}
}

func (h *history) run(ctx context.Context) {
	_, err := corev1.NewNamespaceServiceClient(h.server.Conn()).Create(ctx, &corev1.CreateNamespaceRequest{
		Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: h.namespace}},
	})
	h.check(err)
	h.state = map[string]*corev1.ConfigMap{}
	defer func() {
		if h.cancel != nil {
			h.cancel()
		}
	}()
	h.open(ctx)
	for range rapid.IntRange(1, 40).Draw(h.rt, "steps") {
		switch rapid.SampledFrom([]string{"write", "write", "write", "delete", "cut", "compare"}).Draw(h.rt, "step") {
		case "write":
			h.write(ctx)
		case "delete":
			name := h.name()
			_, err := h.maps.Delete(ctx, &metav1.DeleteRequest{Namespace: h.namespace, Name: name})
			_ = err // it may not exist
		case "cut":
			// Cut off without having read what is on its way, then go on from the last complete revision.
			h.cancel()
			h.pending = nil
			h.open(ctx)
		case "compare":
			h.compare(ctx)
		}
	}
	h.compare(ctx)
}

func (h *history) name() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(h.rt, "name")
}

func (h *history) write(ctx context.Context) {
	obj := &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{
			Namespace: h.namespace, Name: h.name(),
			Labels: map[string]string{"color": rapid.SampledFrom([]string{"red", "blue"}).Draw(h.rt, "color")},
		},
		Data: map[string]string{"n": strconv.Itoa(rapid.IntRange(0, 3).Draw(h.rt, "n"))},
	}
	// Large objects push history out of what the cache remembers, so that resuming goes through the store.
	if rapid.IntRange(0, 24).Draw(h.rt, "size") == 0 {
		obj.Data["filler"] = filler
	}
	if _, err := h.maps.Update(ctx, &corev1.UpdateConfigMapRequest{Object: obj}); err == nil {
		return
	}
	_, err := h.maps.Create(ctx, &corev1.CreateConfigMapRequest{Object: obj})
	h.check(err)
}

func (h *history) open(ctx context.Context) {
	ctx, h.cancel = context.WithCancel(ctx)
	req := &metav1.WatchRequest{Namespace: h.namespace, LabelSelector: h.selector}
	if h.position > 0 {
		req.ResourceVersion = strconv.FormatInt(h.position, 10)
	}
	var err error
	h.stream, err = h.maps.Watch(ctx, req)
	h.check(err)
}

// receive takes one response and applies it once its revision is complete.
func (h *history) receive() {
	resp, err := h.stream.Recv()
	h.check(err)
	if resp.GetRevision() < h.position {
		h.rt.Fatalf("revision went back from %d to %d", h.position, resp.GetRevision())
	}
	h.pending = append(h.pending, resp.GetEvents()...)
	if resp.GetMore() {
		return
	}
	for _, e := range h.pending {
		name := e.GetObject().GetMetadata().GetName()
		_, known := h.state[name]
		if known == (e.GetType() == metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED) {
			h.rt.Fatalf("%v of %s, known: %v", e.GetType(), name, known)
		}
		if e.GetType() == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
			delete(h.state, name)
		} else {
			h.state[name] = e.GetObject()
		}
	}
	h.pending = nil
	h.position = resp.GetRevision()
}

// compare brings the watcher up to the store and holds its state against a list at its position.
func (h *history) compare(ctx context.Context) {
	// A last write that the selector lets through tells that everything before it has come.
	color := "red"
	if h.selector == "color!=red" {
		color = "blue"
	}
	mark, err := h.maps.Create(ctx, &corev1.CreateConfigMapRequest{Object: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{
		Namespace: h.namespace, GenerateName: "mark-", Labels: map[string]string{"color": color},
	}}})
	h.check(err)
	for until, _ := strconv.ParseInt(mark.GetMetadata().GetResourceVersion(), 10, 64); h.position < until; {
		h.receive()
	}
	list, err := h.maps.List(ctx, &metav1.ListRequest{
		Namespace: h.namespace, LabelSelector: h.selector,
		ResourceVersion: strconv.FormatInt(h.position, 10), ResourceVersionMatch: "Exact",
	})
	h.check(err)
	n := 0
	for {
		chunk, err := list.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		h.check(err)
		for _, want := range chunk.GetItems() {
			n++
			if got := h.state[want.GetMetadata().GetName()]; !proto.Equal(got, want) {
				h.rt.Fatalf("at %d: replayed %v\nlisted %v", h.position, got, want)
			}
		}
	}
	if n != len(h.state) {
		h.rt.Fatalf("at %d: replayed %d objects, listed %d", h.position, len(h.state), n)
	}
}
