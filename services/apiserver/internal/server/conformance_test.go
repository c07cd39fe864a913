package server_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// What Kubernetes documents of resourceVersion, lists and watches, over gRPC, at two gateways on one store: both give the
// same answers.
func TestConformance(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *engine{"memory": inMemory, "etcd": inProcess} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // much of it is waiting
			c := newCluster(t, open(t), nil)
			for _, test := range []struct {
				name string
				run  func(*testing.T, *api)
			}{
				{"ListTable", listTable},
				{"GetTable", getTable},
				{"BadPositions", badPositions},
				{"TheOtherGatewayKnows", theOtherGatewayKnows},
				{"PagesAreOneSnapshot", pagesAreOneSnapshot},
				{"TokensOfOtherLists", tokensOfOtherLists},
				{"ListsComeInChunks", listsComeInChunks},
				{"WatchFromEveryRevision", watchFromEveryRevision},
				{"InitialEvents", initialEvents},
				{"WatchFromTheFuture", watchFromTheFuture},
				{"RevisionsAreNotSplit", revisionsAreNotSplit},
				{"SlowWatchersResume", slowWatchersResume},
				{"ExpiredTokensAndWatches", expiredTokensAndWatches},
			} {
				if test.name == "SlowWatchersResume" && name != "memory" {
					continue // it is the gateway that is looked at
				}
				t.Run(test.name, func(t *testing.T) { test.run(t, newAPI(t, c, strings.ToLower(test.name))) })
			}
		})
	}
}

// api is a namespace of its own on a cluster.
type api struct {
	*cluster

	t         *testing.T
	namespace string
}

func newAPI(t *testing.T, c *cluster, namespace string) *api {
	a := &api{cluster: c, t: t, namespace: namespace}
	_, err := corev1.NewNamespaceServiceClient(c.conns[0]).Create(t.Context(), &corev1.CreateNamespaceRequest{
		Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: namespace}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// restartBoth gateways, so that they remember nothing. Calls then find the new ones.
func (a *api) restartBoth() {
	for gateway := range a.conns {
		a.restart(gateway)
		for {
			// The connection may not have heard yet that the old one is gone.
			_, _, err := a.list(gateway, &metav1.ListRequest{ResourceVersion: "0"})
			if err == nil {
				break
			}
			if !apierr.IsUnavailable(err) {
				a.t.Fatal(err)
			}
		}
	}
}

func (a *api) maps(gateway int) corev1.ConfigMapServiceClient {
	return corev1.NewConfigMapServiceClient(a.conns[gateway])
}

func (a *api) object(name, value string, labels ...string) *corev1.ConfigMap {
	obj := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: a.namespace, Name: name}, Data: map[string]string{"v": value}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		if obj.Metadata.Labels == nil {
			obj.Metadata.Labels = map[string]string{}
		}
		obj.Metadata.Labels[key] = value
	}
	return obj
}

// create, update and remove write through one gateway and return the revision.
func (a *api) create(name, value string, labels ...string) int64 {
	a.t.Helper()
	return a.wrote(a.maps(0).Create(a.t.Context(), &corev1.CreateConfigMapRequest{Object: a.object(name, value, labels...)}, grpc.WaitForReady(true)))
}

func (a *api) update(name, value string, labels ...string) int64 {
	a.t.Helper()
	return a.wrote(a.maps(0).Update(a.t.Context(), &corev1.UpdateConfigMapRequest{Object: a.object(name, value, labels...)}, grpc.WaitForReady(true)))
}

func (a *api) remove(name string) int64 {
	a.t.Helper()
	return a.wrote(a.maps(0).Delete(a.t.Context(), &metav1.DeleteRequest{Namespace: a.namespace, Name: name}, grpc.WaitForReady(true)))
}

func (a *api) wrote(obj *corev1.ConfigMap, err error) int64 {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
	return parse(a.t, obj.GetMetadata().GetResourceVersion())
}

func parse(t *testing.T, revision string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func str(revision int64) string { return strconv.FormatInt(revision, 10) }

// list lists config maps of the namespace.
func (a *api) list(gateway int, req *metav1.ListRequest) (string, *metav1.ListMeta, error) {
	if req.Namespace == "" {
		req.Namespace = a.namespace
	}
	items, meta, err := listAll(a.t.Context(), a.conns[gateway], configMaps.service, req)
	return names(items), meta, err
}

// names shows objects as name@revision.
func names(items []item) string {
	var out []string
	for _, i := range items {
		_, name, _ := strings.Cut(i.key, "/")
		out = append(out, fmt.Sprint(name, "@", i.revision))
	}
	return strings.Join(out, " ")
}

func wantReason(t *testing.T, what string, err error, reason apierr.Reason, text string) {
	t.Helper()
	if got := apierr.ReasonOf(err); got != reason || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%s: %v (%s), want %s with %q", what, err, got, reason, text)
	}
}

// listTable is the table of resourceVersion, match and limit, whole.
func listTable(t *testing.T, a *api) {
	at := map[int64][]string{} // what there was at each revision
	a1 := a.create("a", "1")
	at[a1] = []string{fmt.Sprint("a@", a1)}
	b1 := a.create("b", "1")
	at[b1] = append(slices.Clone(at[a1]), fmt.Sprint("b@", b1))
	c1 := a.create("c", "1")
	at[c1] = append(slices.Clone(at[b1]), fmt.Sprint("c@", c1))
	a2 := a.update("a", "2")
	at[a2] = []string{fmt.Sprint("a@", a2), fmt.Sprint("b@", b1), fmt.Sprint("c@", c1)}
	now := a.remove("b")
	at[now] = []string{fmt.Sprint("a@", a2), fmt.Sprint("c@", c1)}
	for gateway := range a.conns {
		// What the cache has is the newest, for this table.
		if got, _, err := a.list(gateway, &metav1.ListRequest{}); err != nil || got != strings.Join(at[now], " ") {
			t.Fatalf("gateway %d: %q, %v", gateway, got, err)
		}
	}
	var waiting sync.WaitGroup
	for _, revision := range []string{"", "0", str(b1), str(a2), str(now), str(now + 1000)} {
		for _, match := range []string{"", "NotOlderThan", "Exact", "Newest"} {
			for _, limit := range []int64{0, 1, 2, 100} {
				for gateway := range a.conns {
					what := fmt.Sprintf("gateway %d, %q %q limit %d", gateway, revision, match, limit)
					req := &metav1.ListRequest{ResourceVersion: revision, ResourceVersionMatch: match, Limit: limit}
					begin := time.Now()
					n, _ := strconv.ParseInt(revision, 10, 64) // empty is 0
					shows := now
					switch {
					case match == "Newest":
						_, _, err := a.list(gateway, req)
						wantReason(t, what, err, apierr.ReasonInvalid, "supported values")
						continue
					case revision == "" && match != "", revision == "0" && match == "Exact":
						_, _, err := a.list(gateway, req)
						wantReason(t, what, err, apierr.ReasonInvalid, "resourceVersionMatch")
						continue
					case n > now:
						waiting.Go(func() {
							_, _, err := a.list(gateway, req)
							wantReason(t, what, err, apierr.ReasonTimeout, "Too large resource version")
							var typed *apierr.Error
							if took := time.Since(begin); took < 3*time.Second || errors.As(err, &typed) && typed.RetryAfter != time.Second {
								t.Errorf("%s: after %s, come again in %s", what, took, typed.RetryAfter)
							}
						})
						continue
					case n > 0 && (match == "Exact" || match == "" && limit > 0):
						shows = n
					}
					if revision == "0" {
						limit = 0 // is ignored
					}
					want := at[shows]
					left := int64(0)
					if limit > 0 && limit < int64(len(want)) {
						want, left = want[:limit], int64(len(want))-limit
					}
					got, meta, err := a.list(gateway, req)
					if err != nil || got != strings.Join(want, " ") {
						t.Errorf("%s: %q, %v; want %q", what, got, err, want)
						continue
					}
					if meta.GetRemainingItemCount() != left || (meta.GetContinue() != "") != (left > 0) {
						t.Errorf("%s: %d remain, token %q; want %d", what, meta.GetRemainingItemCount(), meta.GetContinue(), left)
					}
					if came := parse(t, meta.GetResourceVersion()); came < shows || shows == n && n != now && came != n {
						t.Errorf("%s: as of %d, want %d", what, came, shows)
					}
				}
			}
		}
	}
	waiting.Wait()
}

// getTable: the most recent, any, not older than.
func getTable(t *testing.T, a *api) {
	first := a.create("a", "1")
	last := a.update("a", "2")
	ctx := t.Context()
	for gateway := range a.conns {
		if _, _, err := a.list(gateway, &metav1.ListRequest{}); err != nil {
			t.Fatal(err)
		}
		for _, revision := range []string{"", "0", str(first), str(last)} {
			got, err := a.maps(gateway).Get(ctx, &metav1.GetRequest{Namespace: a.namespace, Name: "a", ResourceVersion: revision})
			if err != nil || got.GetData()["v"] != "2" || got.GetMetadata().GetResourceVersion() != str(last) {
				t.Errorf("gateway %d, %q: %v, %v", gateway, revision, got, err)
			}
			_, err = a.maps(gateway).Get(ctx, &metav1.GetRequest{Namespace: a.namespace, Name: "none", ResourceVersion: revision})
			wantReason(t, revision, apierr.FromStatus(err), apierr.ReasonNotFound, "none")
		}
	}
	_, err := a.maps(1).Get(ctx, &metav1.GetRequest{Namespace: a.namespace, Name: "a", ResourceVersion: str(last + 1000)})
	wantReason(t, "future", apierr.FromStatus(err), apierr.ReasonTimeout, "Too large resource version")
}

// badPositions are refused at once, and their reason is told.
func badPositions(t *testing.T, a *api) {
	a.create("a", "1")
	a.create("b", "1")
	_, meta, err := a.list(0, &metav1.ListRequest{Limit: 1})
	if err != nil || meta.GetContinue() == "" {
		t.Fatal(err, meta)
	}
	token := meta.GetContinue()
	for what, c := range map[string]struct {
		req  *metav1.ListRequest
		text string
	}{
		"words":                 {&metav1.ListRequest{ResourceVersion: "abc"}, "resourceVersion"},
		"negative":              {&metav1.ListRequest{ResourceVersion: "-1"}, "resourceVersion"},
		"fraction":              {&metav1.ListRequest{ResourceVersion: "1.5"}, "resourceVersion"},
		"beyond 64 bits":        {&metav1.ListRequest{ResourceVersion: "99999999999999999999"}, "resourceVersion"},
		"negative limit":        {&metav1.ListRequest{Limit: -1}, "negative"},
		"token and revision":    {&metav1.ListRequest{Continue: token, ResourceVersion: meta.GetResourceVersion()}, "with continue"},
		"token and match":       {&metav1.ListRequest{Continue: token, ResourceVersion: "0", ResourceVersionMatch: "NotOlderThan"}, "with continue"},
		"token, cut":            {&metav1.ListRequest{Continue: token[:len(token)-4]}, "continue"},
		"token of nobody":       {&metav1.ListRequest{Continue: "bm9ib2R5"}, "continue"},
		"selector":              {&metav1.ListRequest{LabelSelector: "a in (b"}, "a in (b"},
		"field that is none":    {&metav1.ListRequest{FieldSelector: "data.v=1"}, "field label not supported"},
		"namespace that is not": {&metav1.ListRequest{Namespace: "a/b"}, ""},
	} {
		for gateway := range a.conns {
			got, _, err := a.list(gateway, c.req)
			if c.text == "" && err == nil && got == "" {
				continue // nothing is in it
			}
			wantReason(t, what, err, apierr.ReasonInvalid, c.text)
		}
	}
	// Not at odds with a token.
	for _, revision := range []string{"", "0"} {
		if got, _, err := a.list(1, &metav1.ListRequest{Continue: token, ResourceVersion: revision, Limit: 5}); err != nil || !strings.HasPrefix(got, "b@") {
			t.Errorf("continue with %q: %q, %v", revision, got, err)
		}
	}
}

// theOtherGatewayKnows at once what has been written here: reads and lists of the newest are consistent.
func theOtherGatewayKnows(t *testing.T, a *api) {
	for i := range 20 {
		name := fmt.Sprint("m", i%3)
		var revision int64
		if i < 3 {
			revision = a.create(name, "0")
		} else {
			revision = a.update(name, fmt.Sprint(i))
		}
		got, meta, err := a.list(1, &metav1.ListRequest{})
		if want := fmt.Sprint(name, "@", revision); err != nil || !strings.Contains(got+" ", want+" ") || parse(t, meta.GetResourceVersion()) < revision {
			t.Fatalf("list after %s: %q at %s, %v", want, got, meta.GetResourceVersion(), err)
		}
		read, err := a.maps(1).Get(t.Context(), &metav1.GetRequest{Namespace: a.namespace, Name: name})
		if err != nil || read.GetMetadata().GetResourceVersion() != str(revision) {
			t.Fatalf("get after %d: %v, %v", revision, read, err)
		}
	}
	a.remove("m0")
	if got, _, err := a.list(1, &metav1.ListRequest{}); err != nil || strings.Contains(got, "m0@") {
		t.Fatalf("list after the deletion: %q, %v", got, err)
	}
}

// pagesAreOneSnapshot, whoever serves them and whatever is written meanwhile.
func pagesAreOneSnapshot(t *testing.T, a *api) {
	for i := range 23 {
		a.create(fmt.Sprintf("m%02d", i), "0", []string{"odd=", "odd=x"}[i%2])
	}
	for _, selector := range []string{"", "odd=x"} {
		whole, meta, err := a.list(0, &metav1.ListRequest{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		count := len(strings.Fields(whole))
		var pages []string
		token, first := "", ""
		for page := 0; ; page++ {
			got, m, err := a.list(page%2, &metav1.ListRequest{LabelSelector: selector, Limit: 4, Continue: token})
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, strings.Fields(got)...)
			if page == 0 {
				first = m.GetResourceVersion()
			}
			if m.GetResourceVersion() != first {
				t.Errorf("page %d at %s, the first at %s", page, m.GetResourceVersion(), first)
			}
			if selector == "" && m.GetRemainingItemCount() != int64(count-len(pages)) || selector != "" && m.RemainingItemCount != nil {
				t.Errorf("selector %q, page %d: %v remain of %d after %d", selector, page, m.RemainingItemCount, count, len(pages))
			}
			if token = m.GetContinue(); token == "" {
				break
			}
			a.update("m22", fmt.Sprint(page), "odd=x")
			a.update(fmt.Sprintf("m%02d", page*2+5), "changed", "odd=x")
			if page == 1 {
				a.remove("m20")
				a.create("m205", "late", "odd=x")
			}
		}
		if got := strings.Join(pages, " "); got != whole {
			t.Errorf("selector %q: pages have\n%s\nthe list at %s\n%s", selector, got, meta.GetResourceVersion(), whole)
		}
		a.create("m20", "again", "odd=")
		a.remove("m205")
	}
}

func tokensOfOtherLists(t *testing.T, a *api) {
	for i := range 4 {
		a.create(fmt.Sprint("m", i), "0", "a=b")
	}
	_, meta, err := a.list(0, &metav1.ListRequest{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	for what, req := range map[string]*metav1.ListRequest{
		"namespace": {Namespace: "default"},
		"labels":    {LabelSelector: "a=b"},
		"fields":    {FieldSelector: "metadata.name=m3"},
	} {
		req.Limit, req.Continue = 2, meta.GetContinue()
		_, _, err := a.list(1, req)
		wantReason(t, what, err, apierr.ReasonInvalid, "another list")
	}
	_, _, err = listAll(t.Context(), a.conns[1], pods.service, &metav1.ListRequest{Namespace: a.namespace, Limit: 2, Continue: meta.GetContinue()})
	wantReason(t, "kind", err, apierr.ReasonInvalid, "another list")
}

// listsComeInChunks below what any client takes by default, all of one revision.
func listsComeInChunks(t *testing.T, a *api) {
	big := strings.Repeat("x", 300<<10)
	var want []string
	for i := range 14 {
		want = append(want, fmt.Sprintf("m%02d@%d", i, a.create(fmt.Sprintf("m%02d", i), big)))
	}
	for gateway := range a.conns {
		w, err := call(t.Context(), a.conns[gateway], configMaps.service, "List", &metav1.ListRequest{Namespace: a.namespace})
		if err != nil {
			t.Fatal(err)
		}
		chunks := 0
		for ; err == nil; chunks++ {
			_, err = w.listing()
		}
		if chunks < 5 {
			t.Errorf("4.2 MB came in %d chunks: %v", chunks-1, err)
		}
		if got, _, err := a.list(gateway, &metav1.ListRequest{}); err != nil || got != strings.Join(want, " ") { // which looks at each chunk
			t.Errorf("gateway %d: %q, %v", gateway, got, err)
		}
	}
}

// expiredTokensAndWatches: what is compacted away, and no cache remembers, is Expired. A token comes with another one
// that goes on with what there is now.
func expiredTokensAndWatches(t *testing.T, a *api) {
	first := a.create("a", "1")
	for _, name := range []string{"b", "c", "d"} {
		a.create(name, "1")
	}
	_, meta, err := a.list(0, &metav1.ListRequest{Limit: 2})
	if err != nil || meta.GetContinue() == "" {
		t.Fatal(meta, err)
	}
	a.remove("c")
	late := a.create("e", "1")
	if err := a.store().Compact(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	a.restartBoth()
	for gateway := range a.conns {
		_, _, err = a.list(gateway, &metav1.ListRequest{Limit: 1, Continue: meta.GetContinue()})
		wantReason(t, "token", err, apierr.ReasonExpired, "continue")
		if code := status.Code(apierr.ToStatus(err)); code != codes.OutOfRange {
			t.Errorf("code %s", code)
		}
		var typed *apierr.Error
		if !errors.As(err, &typed) || typed.Continue == "" {
			t.Fatalf("no token to go on with: %v", err)
		}
		got, next, err := a.list(1-gateway, &metav1.ListRequest{Limit: 1, Continue: typed.Continue})
		if err != nil || !strings.HasPrefix(got, "d@") || parse(t, next.GetResourceVersion()) < late {
			t.Fatalf("the rest as it is now: %q, %v, %v", got, next, err)
		}
		if got, _, err = a.list(gateway, &metav1.ListRequest{Limit: 5, Continue: next.GetContinue()}); err != nil || !strings.HasPrefix(got, "e@") {
			t.Fatalf("and the rest of that: %q, %v", got, err)
		}
		_, _, err = a.list(gateway, &metav1.ListRequest{ResourceVersion: str(first), ResourceVersionMatch: "Exact"})
		wantReason(t, "exact list", err, apierr.ReasonExpired, "too old")
		_, _, err = a.list(gateway, &metav1.ListRequest{ResourceVersion: str(first)})
		if err != nil {
			t.Errorf("not older than what is compacted: %v", err)
		}
		_, err = a.hear(gateway, &metav1.WatchRequest{ResourceVersion: str(first)}, func(answer) bool { return true })
		wantReason(t, "watch", err, apierr.ReasonExpired, "list again")
		if code := status.Code(apierr.ToStatus(err)); code != codes.OutOfRange {
			t.Errorf("code %s", code)
		}
	}
}
