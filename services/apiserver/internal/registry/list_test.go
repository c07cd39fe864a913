package registry_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

// names lists in one go: the names, and the last chunk's metadata.
func (e *env) names(t *testing.T, req *metav1.ListRequest) (string, *metav1.ListMeta) {
	t.Helper()
	chunks, err := e.chunks(t, req)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range chunks {
		for _, m := range c.GetItems() {
			names = append(names, m.GetMetadata().GetName())
		}
	}
	return strings.Join(names, " "), chunks[len(chunks)-1].GetMetadata()
}

func TestListAtARevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		revisions := map[string]string{}
		for _, name := range []string{"a", "b", "c"} {
			revisions[name] = must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap(name, "1"))).GetMetadata().GetResourceVersion()
		}
		for _, c := range []struct {
			revision, match string
			limit           int64
			want            string
		}{
			{"", "", 0, "a b c"},
			{"", "", 2, "a b"},
			{"0", "", 2, "a b c"}, // the limit is ignored
			{"0", "NotOlderThan", 2, "a b c"},
			{revisions["b"], "", 0, "a b c"},
			{revisions["b"], "NotOlderThan", 0, "a b c"},
			{revisions["b"], "NotOlderThan", 1, "a"},
			{revisions["b"], "", 5, "a b"}, // exactly, as old clients mean it
			{revisions["b"], "Exact", 0, "a b"},
			{revisions["a"], "Exact", 0, "a"},
		} {
			got, meta := e.names(t, &metav1.ListRequest{ResourceVersion: c.revision, ResourceVersionMatch: c.match, Limit: c.limit})
			if got != c.want {
				t.Errorf("%q %q limit %d: %q, want %q", c.revision, c.match, c.limit, got, c.want)
			}
			if exact := c.match == "Exact" || c.match == "" && c.limit == 5; exact && meta.GetResourceVersion() != c.revision {
				t.Errorf("%q exactly came as of %s", c.revision, meta.GetResourceVersion())
			}
		}
		// Ahead of everybody: three seconds of patience, then an error that says when to come again.
		for _, match := range []string{"NotOlderThan", "Exact"} {
			begin := time.Now()
			_, err := e.chunks(t, &metav1.ListRequest{ResourceVersion: strconv.FormatInt(e.Revision(t)+1, 10), ResourceVersionMatch: match})
			wantError(t, err, apierr.ReasonTimeout, "Too large resource version")
			var typed *apierr.Error
			if errors.As(apierr.FromStatus(err), &typed); typed.RetryAfter != time.Second || time.Since(begin) != 3*time.Second {
				t.Errorf("%s: after %s, retry after %s", match, time.Since(begin), typed.RetryAfter)
			}
		}
		next := strconv.FormatInt(e.Revision(t)+1, 10)
		go func() {
			time.Sleep(time.Second)
			_, _ = e.maps.Create(t.Context(), configMap("d", "1")) // the list below says whether it came
		}()
		if got, _ := e.names(t, &metav1.ListRequest{ResourceVersion: next, ResourceVersionMatch: "NotOlderThan"}); got != "a b c d" {
			t.Errorf("waited for %q", got)
		}
		got := must[*corev1.ConfigMap](t)(e.cmRaw.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "d", ResourceVersion: next}))
		if got.GetMetadata().GetResourceVersion() != next {
			t.Errorf("got %v", got)
		}
	})
}

// A consistent list goes without the cache where the cache does not get there.
func TestListWhileTheCacheIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap("a", "1")))
		synctest.Wait() // the cache has it
		e.SetFault(func(op apitest.Operation) error {
			if op.Name == "watch" {
				return apitest.ErrUnavailable
			}
			return nil
		})
		must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap("b", "1")))
		stale, _ := e.names(t, &metav1.ListRequest{ResourceVersion: "0"})
		got, meta := e.names(t, &metav1.ListRequest{Limit: 1})
		if stale != "a" || got != "a" || meta.GetRemainingItemCount() != 1 {
			t.Fatalf("cached %q; consistent %q with %d remaining, want one", stale, got, meta.GetRemainingItemCount())
		}
		e.SetFault(nil)
		if got, _ := e.names(t, &metav1.ListRequest{Limit: 1, Continue: meta.GetContinue()}); got != "b" {
			t.Fatalf("second page %q", got)
		}
	})
}

func TestContinueTokens(t *testing.T) {
	e := newEnv(t)
	for i := range 4 {
		must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap(fmt.Sprint("m", i), "1")))
	}
	_, first := e.names(t, &metav1.ListRequest{Namespace: "default", Limit: 2})
	for name, req := range map[string]*metav1.ListRequest{
		"namespace": {Namespace: "kube-system"},
		"labels":    {Namespace: "default", LabelSelector: "a=b"},
		"fields":    {Namespace: "default", FieldSelector: "metadata.name=m1"},
	} {
		req.Limit, req.Continue = 2, first.GetContinue()
		_, err := e.chunks(t, req)
		wantError(t, err, apierr.ReasonInvalid, "another list")
		t.Log(name, err)
	}
	pods, err := e.raw.List(t.Context(), &metav1.ListRequest{Namespace: "default", Limit: 2, Continue: first.GetContinue()})
	if err == nil {
		_, err = pods.Recv()
	}
	wantError(t, err, apierr.ReasonInvalid, "another list")

	// History goes: from the cache, which remembers what etcd has compacted, and from etcd.
	for range 60 {
		must[*corev1.ConfigMap](t)(e.maps.Update(t.Context(), configMap("m0", filler+fmt.Sprint(e.Revision(t)))))
	}
	for i := range 10 { // more kept snapshots than the cache has room for
		must[*corev1.ConfigMap](t)(e.maps.Update(t.Context(), configMap("m1", fmt.Sprint(i))))
		e.names(t, &metav1.ListRequest{Namespace: "default", Limit: 1})
	}
	must[*corev1.ConfigMap](t)(e.maps.Delete(t.Context(), "default", "m2", nil))
	e.Compact(t, e.Revision(t))
	_, err = e.chunks(t, &metav1.ListRequest{Namespace: "default", Limit: 1, Continue: first.GetContinue()})
	wantError(t, err, apierr.ReasonExpired, "continue parameter is too old")
	var typed *apierr.Error
	if !errors.As(apierr.FromStatus(err), &typed) || typed.Continue == "" {
		t.Fatalf("no token to go on with: %v", err)
	}
	got, meta := e.names(t, &metav1.ListRequest{Namespace: "default", Limit: 1, Continue: typed.Continue})
	if got != "m3" || meta.GetContinue() != "" || meta.GetResourceVersion() != strconv.FormatInt(e.Revision(t), 10) {
		t.Fatalf("the rest as it is now: %q, %v", got, meta)
	}
}

func TestWatchSendsInitialEvents(t *testing.T) {
	e := newEnv(t)
	must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap("a", "1")))
	a := strconv.FormatInt(e.Revision(t), 10)
	must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap("b", "1")))
	type watching struct {
		req             *metav1.WatchRequest
		initial, events string
		stream          corev1.ConfigMapService_WatchClient
	}
	watches := []watching{
		{req: &metav1.WatchRequest{}, initial: "a b", events: "c"},
		{req: &metav1.WatchRequest{ResourceVersion: "0"}, initial: "a b", events: "c"},
		{req: &metav1.WatchRequest{ResourceVersion: a}, events: "b c"},
		{req: &metav1.WatchRequest{ResourceVersion: a, SendInitialEvents: proto.Bool(true), ResourceVersionMatch: "NotOlderThan"}, initial: "a b", events: "c"},
		{req: &metav1.WatchRequest{ResourceVersion: a, SendInitialEvents: proto.Bool(false)}, events: "b c"},
		{req: &metav1.WatchRequest{SendInitialEvents: proto.Bool(false)}, events: "c"},
		{req: &metav1.WatchRequest{ResourceVersion: "0", SendInitialEvents: proto.Bool(false)}, events: "c"},
	}
	read := func(w *watching, until func(*corev1.ConfigMapWatchResponse, int) bool) string {
		var names []string
		for {
			resp := must[*corev1.ConfigMapWatchResponse](t)(w.stream.Recv())
			for _, event := range resp.GetEvents() {
				names = append(names, event.GetObject().GetMetadata().GetName())
			}
			if until(resp, len(names)) {
				return strings.Join(names, " ")
			}
		}
	}
	for i := range watches {
		w := &watches[i]
		w.stream = must[corev1.ConfigMapService_WatchClient](t)(e.cmRaw.Watch(t.Context(), w.req))
		if w.req.GetResourceVersion() == a && !w.req.GetSendInitialEvents() {
			continue
		}
		// The initial events, or the revision from which on there are some.
		fromNow := w.req.SendInitialEvents != nil && !w.req.GetSendInitialEvents()
		got := read(w, func(resp *corev1.ConfigMapWatchResponse, _ int) bool { return fromNow || resp.GetInitialEventsEnd() })
		if got != w.initial {
			t.Errorf("%v: initial %q, want %q", w.req, got, w.initial)
		}
	}
	must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), configMap("c", "1")))
	for i := range watches {
		w := &watches[i]
		if got := read(w, func(_ *corev1.ConfigMapWatchResponse, n int) bool { return n == len(strings.Fields(w.events)) }); got != w.events {
			t.Errorf("%v: then %q, want %q", w.req, got, w.events)
		}
	}
	for text, req := range map[string]*metav1.WatchRequest{
		"unless sendInitialEvents": {ResourceVersion: a, ResourceVersionMatch: "NotOlderThan"},
		"must be NotOlderThan":     {ResourceVersionMatch: "Exact", SendInitialEvents: proto.Bool(true)},
	} {
		_, err := must[corev1.ConfigMapService_WatchClient](t)(e.cmRaw.Watch(t.Context(), req)).Recv()
		wantError(t, err, apierr.ReasonInvalid, text)
	}
}

func TestWatchByOwnerAndIndexedLabel(t *testing.T) {
	e := newEnv(t)
	start := strconv.FormatInt(e.Revision(t), 10)
	owned := func(name, uid, hash string) {
		must[*corev1.Pod](t)(e.pods.Create(t.Context(), pod(name, func(p *corev1.Pod) {
			p.Metadata.OwnerReferences = []*metav1.OwnerReference{{ApiVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", Uid: uid}}
			p.Metadata.Labels = map[string]string{"pod-template-hash": hash, "app": name}
		})))
	}
	owned("a", "u1", "h1")
	owned("b", "u2", "h1")
	owned("c", "u1", "h2")
	for want, req := range map[string]*metav1.WatchRequest{
		"a c": {FieldSelector: "metadata.ownerReferences.uid=u1"},
		"b":   {FieldSelector: "metadata.ownerReferences.uid!=u1"},
		"a b": {LabelSelector: "pod-template-hash=h1"},
		"a":   {LabelSelector: "pod-template-hash=h1,app!=b"},
		"c":   {LabelSelector: "pod-template-hash in (h2)", FieldSelector: "metadata.ownerReferences.uid=u1"},
	} {
		req.ResourceVersion = start
		w := must[corev1.PodService_WatchClient](t)(e.raw.Watch(t.Context(), req))
		var seen []string
		for len(seen) < len(strings.Fields(want)) {
			for _, event := range must[*corev1.PodWatchResponse](t)(w.Recv()).GetEvents() {
				seen = append(seen, event.GetObject().GetMetadata().GetName())
			}
		}
		if got := strings.Join(seen, " "); got != want {
			t.Errorf("%v: %q, want %q", req, got, want)
		}
		list := must[corev1.PodService_ListClient](t)(e.raw.List(t.Context(), &metav1.ListRequest{LabelSelector: req.LabelSelector, FieldSelector: req.FieldSelector}))
		var names []string
		for _, p := range must[*corev1.PodList](t)(list.Recv()).GetItems() {
			names = append(names, p.GetMetadata().GetName())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("list %v: %q, want %q", req, got, want)
		}
	}
}
