package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	added    = metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED
	modified = metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED
	deleted  = metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED
)

func (e *env) label(t *testing.T, name, value string) *corev1.ConfigMap {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"app":%q}}}`, value)
	got, err := e.cmRaw.Patch(t.Context(), &metav1.PatchRequest{
		Namespace: "default", Name: name, Type: metav1.PatchType_PATCH_TYPE_MERGE, Patch: []byte(patch),
	})
	return must[*corev1.ConfigMap](t)(got, err)
}

func TestWatchSeesSelectorTransitions(t *testing.T) {
	e := newEnv(t)
	start := strconv.FormatInt(e.Revision(t), 10)
	w := must[corev1.ConfigMapService_WatchClient](t)(e.cmRaw.Watch(t.Context(), &metav1.WatchRequest{
		Namespace: "default", LabelSelector: "app=web", ResourceVersion: start,
	}))
	must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap("a", "1")))
	in := e.label(t, "a", "web")
	out := e.label(t, "a", "db")
	back := e.label(t, "a", "web")
	gone := must[*corev1.ConfigMap](t)(e.maps.Delete(t.Context(), "default", "a", nil))

	last := clone(in)
	last.Metadata.ResourceVersion = out.GetMetadata().GetResourceVersion()
	want := []*corev1.ConfigMapWatchEvent{
		{Type: added, Object: in}, {Type: deleted, Object: last}, {Type: added, Object: back}, {Type: deleted, Object: gone},
	}
	if gone.GetMetadata().GetResourceVersion() != strconv.FormatInt(e.Revision(t), 10) {
		t.Fatalf("deletion at %s", gone.GetMetadata().GetResourceVersion())
	}
	for len(want) > 0 {
		resp, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range resp.GetEvents() {
			if !proto.Equal(event, want[0]) {
				t.Fatalf("got %v\nwant %v", event, want[0])
			}
			want = want[1:]
		}
	}
}

func TestWatchByField(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	w := must[corev1.PodService_WatchClient](t)(e.raw.Watch(ctx, &metav1.WatchRequest{FieldSelector: "spec.nodeName=n1,status.phase!=Failed"}))
	if first := must[*corev1.PodWatchResponse](t)(w.Recv()); !first.GetInitialEventsEnd() || len(first.GetEvents()) != 0 {
		t.Fatalf("initial response %v", first)
	}
	p := must[*corev1.Pod](t)(e.pods.Create(ctx, pod("a")))
	must[*corev1.BindResponse](t)(e.raw.Bind(ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{{Bindings: []*corev1.Binding{{
		Namespace: "default", PodName: "a", PodUid: p.GetMetadata().GetUid(), NodeName: "n1",
	}}}}}))
	if got := must[*corev1.PodWatchResponse](t)(w.Recv()).GetEvents()[0]; got.GetType() != added {
		t.Fatalf("binding came as %v", got.GetType())
	}
	failed := must[*corev1.Pod](t)(e.pods.Get(ctx, "default", "a"))
	failed.Status.Phase = "Failed"
	must[*corev1.Pod](t)(e.pods.UpdateStatus(ctx, failed))
	if got := must[*corev1.PodWatchResponse](t)(w.Recv()).GetEvents()[0]; got.GetType() != deleted {
		t.Fatalf("failing came as %v", got.GetType())
	}
	_, err := must[corev1.PodService_WatchClient](t)(e.raw.Watch(ctx, &metav1.WatchRequest{FieldSelector: "spec.hostname=x"})).Recv()
	wantError(t, err, apierr.ReasonInvalid, "field label not supported", "spec.nodeName")
	_, err = must[corev1.PodService_WatchClient](t)(e.raw.Watch(ctx, &metav1.WatchRequest{LabelSelector: "a in (b"})).Recv()
	wantError(t, err, apierr.ReasonInvalid, "a in (b")
}

func TestWatchFromCompactedAndFutureRevisions(t *testing.T) {
	e := newEnv(t)
	first := must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap("a", "1")))
	for i := range 60 {
		// Large enough that the cache does not remember them all.
		must[*corev1.ConfigMap](t)(e.maps.Update(t.Context(), configMap("a", fmt.Sprint(filler, i))))
	}
	watch := func(revision string) error {
		w := must[corev1.ConfigMapService_WatchClient](t)(e.cmRaw.Watch(t.Context(), &metav1.WatchRequest{ResourceVersion: revision}))
		_, err := w.Recv()
		return err
	}
	future := e.Revision(t) + 1000
	wantError(t, watch(strconv.FormatInt(future, 10)), apierr.ReasonTimeout, "Too large resource version")
	wantError(t, watch("abc"), apierr.ReasonInvalid, "resourceVersion")

	e.Compact(t, e.Revision(t))
	list, err := e.cmRaw.List(t.Context(), &metav1.ListRequest{ResourceVersion: first.GetMetadata().GetResourceVersion(), ResourceVersionMatch: "Exact"})
	if err == nil {
		_, err = list.Recv()
	}
	wantError(t, err, apierr.ReasonExpired)
	wantError(t, watch(first.GetMetadata().GetResourceVersion()), apierr.ReasonExpired, "list again")
}

// chunks lists and returns the chunks.
func (e *env) chunks(t *testing.T, req *metav1.ListRequest) ([]*corev1.ConfigMapList, error) {
	t.Helper()
	stream, err := e.cmRaw.List(t.Context(), req)
	if err != nil {
		return nil, err
	}
	var out []*corev1.ConfigMapList
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if size := proto.Size(chunk); size > 1<<20 {
			t.Fatalf("chunk of %d bytes", size)
		}
		out = append(out, chunk)
	}
}

func TestListPagesAreOneSnapshot(t *testing.T) {
	e := newEnv(t)
	for i := range 10 {
		must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap(fmt.Sprint("m", i), "1")))
	}
	req := &metav1.ListRequest{Namespace: "default", Limit: 4}
	var names []string
	var revision string
	for page := 0; ; page++ {
		chunks, err := e.chunks(t, req)
		if err != nil {
			t.Fatal(err)
		}
		meta := chunks[len(chunks)-1].GetMetadata()
		if page == 0 {
			revision = meta.GetResourceVersion()
			if meta.GetRemainingItemCount() != 6 {
				t.Fatalf("remaining %d, want 6", meta.GetRemainingItemCount())
			}
			must[*corev1.ConfigMap](t)(e.maps.Delete(t.Context(), "default", "m7", nil))
			must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap("m55", "late")))
		}
		if meta.GetResourceVersion() != revision {
			t.Fatalf("page %d is at %s, want %s", page, meta.GetResourceVersion(), revision)
		}
		for _, c := range chunks {
			for _, m := range c.GetItems() {
				names = append(names, m.GetMetadata().GetName())
			}
		}
		if meta.GetContinue() == "" {
			break
		}
		req = &metav1.ListRequest{Namespace: "default", Limit: 4, Continue: meta.GetContinue()}
	}
	if got := strings.Join(names, " "); got != "m0 m1 m2 m3 m4 m5 m6 m7 m8 m9" {
		t.Fatalf("pages show %s", got)
	}
	for name, c := range map[string]struct {
		req  *metav1.ListRequest
		text string
	}{
		"bad token":         {&metav1.ListRequest{Continue: "!!"}, "continue"},
		"token and match":   {&metav1.ListRequest{Continue: "x", ResourceVersionMatch: "Exact"}, "forbidden with continue"},
		"exact nothing":     {&metav1.ListRequest{ResourceVersionMatch: "Exact"}, "needs a resourceVersion"},
		"unknown match":     {&metav1.ListRequest{ResourceVersion: "1", ResourceVersionMatch: "About"}, "supported values"},
		"negative limit":    {&metav1.ListRequest{Limit: -1}, "negative"},
		"match but nothing": {&metav1.ListRequest{ResourceVersionMatch: "NotOlderThan"}, "unless resourceVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.chunks(t, c.req)
			wantError(t, err, apierr.ReasonInvalid, c.text)
		})
	}
	_, err := e.chunks(t, &metav1.ListRequest{ResourceVersion: strconv.FormatInt(e.Revision(t)+9, 10)})
	wantError(t, err, apierr.ReasonTimeout, "Too large resource version")
	exact, err := e.chunks(t, &metav1.ListRequest{ResourceVersion: revision, ResourceVersionMatch: "Exact"})
	if err != nil || len(exact[0].GetItems()) != 10 {
		t.Fatalf("exact list: %v %v", exact, err)
	}
	selected, err := e.chunks(t, &metav1.ListRequest{FieldSelector: "metadata.name=m3"})
	if err != nil || len(selected) != 1 || len(selected[0].GetItems()) != 1 {
		t.Fatalf("by name: %v %v", selected, err)
	}
}

func TestLargeListsAndRevisionsAreSplit(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	const n = 12
	big := strings.Repeat("x", 300<<10)
	var bindings []*corev1.Binding
	for i := range n {
		p := must[*corev1.Pod](t)(e.pods.Create(ctx, pod(fmt.Sprint("p", i), func(p *corev1.Pod) {
			p.Metadata.Annotations = map[string]string{"big": big[:250<<10]}
		})))
		bindings = append(bindings, &corev1.Binding{Namespace: "default", PodName: p.GetMetadata().GetName(), NodeName: "n1"})
		m := configMap(fmt.Sprint("m", i), big)
		must[*corev1.ConfigMap](t)(e.maps.Create(ctx, m))
	}
	chunks, err := e.chunks(t, &metav1.ListRequest{})
	if err != nil || len(chunks) < 4 {
		t.Fatalf("%d chunks, %v", len(chunks), err)
	}
	items := 0
	for _, c := range chunks {
		items += len(c.GetItems())
		if c.GetMetadata().GetResourceVersion() != chunks[0].GetMetadata().GetResourceVersion() {
			t.Fatal("chunks of different revisions")
		}
	}
	if items != n {
		t.Fatalf("%d items", items)
	}

	w := must[corev1.PodService_WatchClient](t)(e.raw.Watch(ctx, &metav1.WatchRequest{ResourceVersion: strconv.FormatInt(e.Revision(t), 10)}))
	bound := must[*corev1.BindResponse](t)(e.raw.Bind(ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{{Bindings: bindings}}}))
	if bound.GetResults()[0].GetError() != nil {
		t.Fatal(bound)
	}
	responses, events := 0, 0
	for events < n {
		resp := must[*corev1.PodWatchResponse](t)(w.Recv())
		responses++
		events += len(resp.GetEvents())
		if proto.Size(resp) > 1<<20 {
			t.Fatalf("response of %d bytes", proto.Size(resp))
		}
		if resp.GetMore() != (events < n) || strconv.FormatInt(resp.GetRevision(), 10) != bound.GetResults()[0].GetResourceVersion() {
			t.Fatalf("response %d: more %v at %d after %d events", responses, resp.GetMore(), resp.GetRevision(), events)
		}
	}
	if responses < 2 {
		t.Fatal("one revision of 3 MB came in one response")
	}
}

func TestCorruptBytesFailTheirReadersOnly(t *testing.T) {
	e := newEnv(t)
	must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap("good", "1")))
	e.Put(t, "/trireme/core/configmaps/default/bad", []byte("garbage"))
	_, err := e.maps.Get(t.Context(), "default", "bad")
	wantError(t, err, apierr.ReasonInternal, "/trireme/core/configmaps/default/bad is not a ConfigMap")
	// Lists go on without it.
	var listed []string
	for _, chunk := range must[[]*corev1.ConfigMapList](t)(e.chunks(t, &metav1.ListRequest{})) {
		for _, item := range chunk.GetItems() {
			listed = append(listed, item.GetMetadata().GetName())
		}
	}
	if !slices.Equal(listed, []string{"good"}) {
		t.Errorf("listed %v", listed)
	}
	must[*corev1.ConfigMap](t)(e.maps.Get(t.Context(), "default", "good"))
	must[*corev1.Pod](t)(e.pods.Create(t.Context(), pod("a")))
}

func TestBookmarkTellsOfEventsThatTheFilterTookOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		w := must[corev1.ConfigMapService_WatchClient](t)(e.cmRaw.Watch(ctx, &metav1.WatchRequest{LabelSelector: "app=web", AllowBookmarks: true}))
		must[*corev1.ConfigMapWatchResponse](t)(w.Recv())
		must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("other", "1")))
		resp := must[*corev1.ConfigMapWatchResponse](t)(w.Recv())
		if len(resp.GetEvents()) > 0 || resp.GetRevision() != e.Revision(t) {
			t.Errorf("at revision %d: %v", e.Revision(t), resp)
		}
	})
}

func TestWatchEndsWhenItsCallerDoes(t *testing.T) {
	e := newEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := must[corev1.ConfigMapService_WatchClient](t)(e.cmRaw.Watch(ctx, &metav1.WatchRequest{}))
	must[*corev1.ConfigMapWatchResponse](t)(w.Recv())
	cancel()
	if _, err := w.Recv(); !apierr.IsCanceled(apierr.FromStatus(err)) {
		t.Fatal(err)
	}
}
