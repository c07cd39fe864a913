package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

// hearing bounds how long a test waits for events.
const hearing = time.Minute

// hear watches config maps of the namespace until a response is the last wanted.
func (a *api) hear(gateway int, req *metav1.WatchRequest, last func(answer) bool) ([]answer, error) {
	ctx, cancel := context.WithTimeout(a.t.Context(), hearing)
	defer cancel()
	if req.Namespace == "" {
		req.Namespace = a.namespace
	}
	w, err := call(ctx, a.conns[gateway], configMaps.service, "Watch", req)
	if err != nil {
		return nil, err
	}
	var out []answer
	for {
		resp, err := w.watching()
		if err != nil {
			return out, err
		}
		if n := len(out); n > 0 && resp.revision < out[n-1].revision {
			return out, fmt.Errorf("revision %d after %d", resp.revision, out[n-1].revision)
		}
		out = append(out, resp)
		if last(resp) {
			return out, nil
		}
	}
}

// told shows events as type name@revision.
func told(answers []answer) []string {
	var out []string
	for _, a := range answers {
		for _, e := range a.events {
			_, name, _ := strings.Cut(e.key, "/")
			out = append(out, fmt.Sprintf("%c %s@%d", "?AMD"[e.typ], name, e.revision))
		}
	}
	return out
}

func upTo(revision int64) func(answer) bool {
	return func(r answer) bool { return r.revision >= revision && !r.more }
}

// watchFromEveryRevision, at a gateway that remembers and at one that has to ask the store: with selectors, whose
// transitions are ADDED and DELETED. DELETED carries the last state and the revision of the change.
func watchFromEveryRevision(t *testing.T, a *api) {
	type step struct {
		revision int64
		all, web string // event as all see it, and those who select app=web
	}
	start := a.create("zero", "1")
	var steps []step
	did := func(revision int64, all, web string) {
		for _, e := range []*string{&all, &web} {
			if *e != "" {
				*e += fmt.Sprint("@", revision)
			}
		}
		steps = append(steps, step{revision, all, web})
	}
	did(a.create("a", "1"), "A a", "")
	did(a.update("a", "2", "app=web"), "M a", "A a")
	did(a.create("b", "1", "app=web"), "A b", "A b")
	did(a.update("a", "3", "app=web"), "M a", "M a")
	did(a.update("a", "4", "app=db"), "M a", "D a")
	did(a.remove("b"), "D b", "D b")
	did(a.create("b", "2"), "A b", "")
	did(a.update("a", "5", "app=web"), "M a", "A a")
	did(a.remove("a"), "D a", "D a")
	did(a.create("a", "6", "app=web"), "A a", "A a")
	did(a.create("end", "1", "app=web"), "A end", "A end")
	last := steps[len(steps)-1].revision
	for _, gateway := range []string{"warm", "cold"} {
		var waiting sync.WaitGroup
		for from := -1; from < len(steps)-1; from++ {
			waiting.Go(func() {
				after := start
				if from >= 0 {
					after = steps[from].revision
				}
				var all, web []string
				for _, s := range steps[from+1:] {
					all, web = append(all, s.all), append(web, s.web)
				}
				web = slices.DeleteFunc(web, func(s string) bool { return s == "" })
				for selector, want := range map[string][]string{"": all, "app=web": web} {
					got, err := a.hear((from+2)%2, &metav1.WatchRequest{ResourceVersion: str(after), LabelSelector: selector}, upTo(last))
					if err != nil || !slices.Equal(told(got), want) {
						t.Errorf("%s, from %d, %q: %q, %v; want %q", gateway, after, selector, told(got), err, want)
					}
					for _, r := range got {
						for _, e := range r.events {
							if m := decode(t, e.item); e.typ == deleted && m.GetData()["v"] != map[string]string{"a": "3", "b": "1"}[m.GetMetadata().GetName()] &&
								m.GetData()["v"] != "5" {
								t.Errorf("%s: deleted with %v", told(got), m.GetData())
							}
						}
					}
				}
			})
		}
		waiting.Wait()
		// The next ones have forgotten, and find it in the store.
		a.restartBoth()
	}
}

func decode(t *testing.T, i item) *corev1.ConfigMap {
	t.Helper()
	m := &corev1.ConfigMap{}
	if err := proto.Unmarshal(i.bytes, m); err != nil {
		t.Error(err)
	}
	return m
}

// initialEvents: the state as ADDED, none of it complete until the response that says so; then what follows.
func initialEvents(t *testing.T, a *api) {
	first := a.create("a", "1")
	a.create("b", "1")
	big := strings.Repeat("x", 700<<10)
	for i := range 3 {
		a.create(fmt.Sprint("big", i), big)
	}
	a.update("a", "2")
	now := a.remove("b")
	for gateway := range a.conns {
		if _, _, err := a.list(gateway, &metav1.ListRequest{}); err != nil { // the cache is there
			t.Fatal(err)
		}
		for what, c := range map[string]struct {
			req     *metav1.WatchRequest
			initial bool
		}{
			"nothing":                  {&metav1.WatchRequest{}, true},
			"0":                        {&metav1.WatchRequest{ResourceVersion: "0"}, true},
			"nothing, asked":           {&metav1.WatchRequest{SendInitialEvents: proto.Bool(true), ResourceVersionMatch: "NotOlderThan", AllowBookmarks: true}, true},
			"0, asked":                 {&metav1.WatchRequest{ResourceVersion: "0", SendInitialEvents: proto.Bool(true), ResourceVersionMatch: "NotOlderThan", AllowBookmarks: true}, true},
			"a revision, asked":        {&metav1.WatchRequest{ResourceVersion: str(first), SendInitialEvents: proto.Bool(true), ResourceVersionMatch: "NotOlderThan"}, true},
			"the newest, asked":        {&metav1.WatchRequest{ResourceVersion: str(now), SendInitialEvents: proto.Bool(true), ResourceVersionMatch: "NotOlderThan"}, true},
			"nothing, and no state":    {&metav1.WatchRequest{SendInitialEvents: proto.Bool(false)}, false},
			"the newest, and no state": {&metav1.WatchRequest{ResourceVersion: str(now), SendInitialEvents: proto.Bool(false)}, false},
		} {
			if !c.initial && c.req.GetResourceVersion() != "" {
				continue // nothing comes until something happens
			}
			got, err := a.hear(gateway, c.req, func(r answer) bool { return r.ends || !c.initial })
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			var names []string
			for i, r := range got {
				if !r.more && i < len(got)-1 {
					t.Errorf("%s: response %d of %d before the end is whole", what, i+1, len(got))
				}
				for _, e := range r.events {
					if e.typ != added || e.revision > r.revision {
						t.Errorf("%s: %v %s@%d in the state at %d", what, e.typ, e.key, e.revision, r.revision)
					}
					names = append(names, strings.TrimPrefix(e.key, a.namespace+"/"))
				}
			}
			want := []string{"a", "big0", "big1", "big2"}
			if !c.initial {
				want = nil
			}
			if end := got[len(got)-1]; !slices.Equal(names, want) || end.revision < now || c.initial && len(got) < 3 {
				t.Errorf("%s: %q at %d in %d responses, want %q at %d", what, names, end.revision, len(got), want, now)
			}
		}
		for what, req := range map[string]*metav1.WatchRequest{
			"match without asking": {ResourceVersion: str(now), ResourceVersionMatch: "NotOlderThan"},
			"exact":                {ResourceVersion: str(now), ResourceVersionMatch: "Exact", SendInitialEvents: proto.Bool(true)},
			"words":                {ResourceVersion: "newest"},
			"selector":             {LabelSelector: "a in (b"},
		} {
			_, err := a.hear(gateway, req, func(answer) bool { return true })
			wantReason(t, what, err, apierr.ReasonInvalid, "")
		}
	}
}

func watchFromTheFuture(t *testing.T, a *api) {
	now := a.create("a", "1")
	for gateway := range a.conns {
		_, err := a.hear(gateway, &metav1.WatchRequest{ResourceVersion: str(now + 1000)}, func(answer) bool { return true })
		wantReason(t, "watch", err, apierr.ReasonTimeout, "Too large resource version")
		// Not the future is what one gateway has written and the other has not heard of yet.
		next := a.update("a", fmt.Sprint(gateway))
		after := a.update("a", "more")
		got, err := a.hear(1, &metav1.WatchRequest{ResourceVersion: str(next)}, upTo(after))
		if want := []string{fmt.Sprint("M a@", after)}; err != nil || !slices.Equal(told(got), want) {
			t.Errorf("%q, %v; want %q", told(got), err, want)
		}
	}
}

// revisionsAreNotSplit: 1,000 pods are bound at one revision, which takes several responses. All but the last have more
// set, and a watch that is cut off inside resumes at the other gateway without loss, and without anything twice.
func revisionsAreNotSplit(t *testing.T, a *api) {
	const n = 1000
	pad := strings.Repeat("x", 3<<10)
	bindings := make([]*corev1.Binding, n)
	var creating sync.WaitGroup
	for part := range 50 {
		creating.Go(func() {
			for i := part; i < n; i += 50 {
				name := fmt.Sprintf("p%04d", i)
				bindings[i] = &corev1.Binding{Namespace: a.namespace, PodName: name, NodeName: "n1"}
				_, err := corev1.NewPodServiceClient(a.conns[i%2]).Create(t.Context(), &corev1.CreatePodRequest{Object: &corev1.Pod{
					Metadata: &metav1.ObjectMeta{Namespace: a.namespace, Name: name, Annotations: map[string]string{"pad": pad}},
					Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "registry.example/app:1"}}},
				}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()
	if t.Failed() {
		return
	}
	before, err := a.store().Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bound, err := corev1.NewPodServiceClient(a.conns[0]).Bind(t.Context(), &corev1.BindRequest{Groups: []*corev1.BindGroup{{Bindings: bindings}}})
	if err != nil || bound.GetResults()[0].GetError() != nil {
		t.Fatal(err, bound.GetResults()[0].GetError())
	}
	at := parse(t, bound.GetResults()[0].GetResourceVersion())
	for _, state := range []string{"warm", "cold"} {
		for _, selector := range []string{"", "spec.nodeName=n1"} {
			for gateway := range a.conns {
				position, seen, cut := before, map[string]bool{}, 0
				// Cut off after the first part, then after the second, and at last not.
				for try := 1; position < at; try++ {
					ctx, cancel := context.WithTimeout(t.Context(), hearing)
					w, err := call(ctx, a.conns[(gateway+try)%2], pods.service, "Watch", &metav1.WatchRequest{
						Namespace: a.namespace, FieldSelector: selector, ResourceVersion: str(position),
					})
					if err != nil {
						t.Fatal(err)
					}
					var whole []heard
					for part := 1; position < at && part <= try; part++ {
						resp, err := w.watching()
						if err != nil {
							t.Fatal(err)
						}
						whole = append(whole, resp.events...)
						if resp.revision != at {
							t.Fatalf("a response at %d, bound at %d", resp.revision, at)
						}
						if resp.more != (len(whole) < n) {
							t.Fatalf("more is %v after %d of %d events", resp.more, len(whole), n)
						}
						if !resp.more {
							position = at
						}
					}
					cancel()
					if position < at {
						cut++
						continue
					}
					for _, e := range whole {
						if seen[e.key] || e.revision != at {
							t.Fatalf("%s@%d, seen before: %v", e.key, e.revision, seen[e.key])
						}
						seen[e.key] = true
					}
				}
				if len(seen) != n || cut < 2 {
					t.Errorf("%s, %q: %d of %d pods after %d cuts", state, selector, len(seen), n, cut)
				}
			}
		}
		a.restartBoth()
	}
}

// slowWatchersResume: who does not read is ended with a status that says so, once it reads on, and resumes without loss.
// Nobody else notices.
func slowWatchersResume(t *testing.T, a *api) {
	start := a.create("a", "0")
	ctx, cancel := context.WithTimeout(t.Context(), hearing)
	defer cancel()
	slow, err := call(ctx, a.conns[1], configMaps.service, "Watch", &metav1.WatchRequest{Namespace: a.namespace, ResourceVersion: str(start)})
	if err != nil {
		t.Fatal(err)
	}
	quick, err := call(ctx, a.conns[1], configMaps.service, "Watch", &metav1.WatchRequest{Namespace: a.namespace, ResourceVersion: str(start)})
	if err != nil {
		t.Fatal(err)
	}
	const each = 5000
	const writes = 12 * each // more than what is on its way and what waits for anybody
	var ops []storage.Op
	for i := range each {
		name := fmt.Sprintf("m%04d", i)
		value, err := envelope.Encode(a.object(name, "1"))
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, storage.Op{Key: configMaps.prefix + a.namespace + "/" + name, Value: value})
	}
	for range writes / each {
		revision, err := a.store().Commit(ctx, storage.Txn{Then: ops})
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < each; {
			got, err := quick.watching()
			if n += len(got.events); err != nil || got.revision != revision || got.more != (n < each) {
				t.Fatalf("the quick one is at %d with %d events, more: %v, instead of %d: %v", got.revision, n, got.more, revision, err)
			}
		}
	}
	position, heard, partial := start, 0, 0
	for err == nil {
		var resp answer
		if resp, err = slow.watching(); err != nil {
			break
		}
		if partial += len(resp.events); !resp.more {
			heard, position, partial = heard+partial, resp.revision, 0
		}
	}
	wantReason(t, "slow watcher", err, apierr.ReasonConflict, "resume")
	last := a.remove("a")
	rest, err := a.hear(0, &metav1.WatchRequest{ResourceVersion: str(position)}, upTo(last))
	if n := heard + len(told(rest)); err != nil || n != writes+1 || heard >= writes {
		t.Errorf("%d events before and %d after resuming, want %d: %v", heard, len(told(rest)), writes+1, errors.Join(err))
	}
}
