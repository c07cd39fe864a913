package server_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/storage"
)

type verb int

const (
	get verb = iota
	list
	create
	update
	patch
	remove
)

func (v verb) String() string {
	return [...]string{"get", "list", "create", "update", "patch", "delete"}[v]
}

// request is one operation on an object.
type request struct {
	name  string
	verb  verb
	value string // written
	least int64  // resourceVersion that an update or delete names; 0 for none
}

// response is what came of it.
type response struct {
	reason   apierr.Reason // empty for success
	value    string
	revision int64
	unknown  bool // it may have happened, or not, or happen later
}

// content is the state of one object. Revision is unknown after a write that nobody was told the outcome of, until
// somebody reads it; it is greater than after.
type content struct {
	exists   bool
	value    string
	revision int64
	after    int64
}

const unknownRevision = -1

// objectModel is an object under the gateway's verbs. Operations of unknown outcome never return, so that they may also be
// put behind everything else, where nobody sees that they have happened.
var objectModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, op := range history {
			in, _ := op.Input.(request)
			by[in.name] = append(by[in.name], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range by {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return content{} },
	Step: func(state, input, output any) (bool, any) {
		s, _ := state.(content)
		in, _ := input.(request)
		out, _ := output.(response)
		return s.step(in, out)
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// at reports whether the state may be at a revision, and pins it there.
func (s content) at(revision int64) (content, bool) {
	if s.revision == unknownRevision && revision > s.after {
		s.revision = revision
	}
	return s, s.revision == revision
}

func (s content) step(in request, out response) (bool, content) {
	switch in.verb {
	case get, list:
		if out.reason == apierr.ReasonNotFound {
			return !s.exists, s
		}
		pinned, ok := s.at(out.revision)
		return s.exists && s.value == out.value && ok, pinned
	case create:
		switch {
		case out.unknown:
			if !s.exists {
				s = content{exists: true, value: in.value, revision: unknownRevision, after: s.last()}
			}
			return true, s
		case out.reason == apierr.ReasonAlreadyExists:
			return s.exists, s
		}
		return !s.exists && out.revision > s.last(), content{exists: true, value: in.value, revision: out.revision}
	}
	// What remains changes an object that must exist, and be at the revision where one was named.
	if out.reason == apierr.ReasonNotFound {
		return !s.exists, s
	}
	if out.reason == apierr.ReasonConflict {
		return s.exists && in.least != 0 && s.revision != in.least, s
	}
	applies := s.exists
	if in.least != 0 {
		s, applies = s.mayBeAt(in.least, applies)
	}
	if out.unknown {
		switch {
		case !applies:
		case in.verb == remove:
			s = content{after: s.last()}
		default:
			s = content{exists: true, value: in.value, revision: unknownRevision, after: s.last()}
		}
		return true, s
	}
	if !applies || out.revision <= s.last() {
		return false, s
	}
	if in.verb == remove {
		return true, content{after: out.revision}
	}
	return true, content{exists: true, value: in.value, revision: out.revision}
}

func (s content) mayBeAt(revision int64, applies bool) (content, bool) {
	pinned, ok := s.at(revision)
	if applies && ok {
		return pinned, true
	}
	return s, false
}

// last is a revision that the object has passed.
func (s content) last() int64 { return max(s.revision, s.after) }

// Gets, consistent lists and all writes of several objects at two gateways, while gateways are stopped and cut off and
// etcd is killed: every history has an order in which each operation sees those before it, with revisions that only grow.
func TestObjectsAreLinearizable(t *testing.T) {
	check := func(t *testing.T, open func(*testing.T) *engine, n uint64) {
		history := record(t, newCluster(t, open(t), nil), n, 900, true)
		if result := judgeHistory(history); result != porcupine.Ok {
			t.Errorf("the history is %s", result)
		}
	}
	t.Run("memory", func(t *testing.T) {
		seeds(t, func(t *testing.T, n uint64) {
			synctest.Test(t, func(t *testing.T) { check(t, inMemory, n) })
		})
	})
	t.Run("etcd", func(t *testing.T) {
		seeds(t, func(t *testing.T, n uint64) { check(t, ownProcess, n) })
	})
}

// seeds tests with one seed, and those that follow for as long as -duration says.
func seeds(t *testing.T, test func(*testing.T, uint64)) {
	n := seed(t)
	for begin := time.Now(); ; n++ {
		if !t.Run(fmt.Sprint("seed=", n), func(t *testing.T) { test(t, n) }) || time.Since(begin) >= *durationFlag {
			return
		}
	}
}

// judgeTimeout is how long to look for an order.
const judgeTimeout = 60 * time.Second

func judgeHistory(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(objectModel, history, judgeTimeout)
}

// record lets clients do random things and returns what came of them.
func record(t *testing.T, c *cluster, n uint64, steps int, disturbed bool) []porcupine.Operation {
	const clients = 6
	var mu sync.Mutex
	var history []porcupine.Operation
	begin := time.Now()
	done := newCounter()
	var clock atomic.Int64 // orders what the time does not tell apart
	now := func() int64 { return int64(time.Since(begin)) + clock.Add(1) }
	ctx, cancel := context.WithTimeout(t.Context(), roundTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			u := &user{random: rand.New(rand.NewPCG(n, uint64(i))), cluster: c, known: map[string]int64{}}
			for step := range steps / clients {
				in := u.choose(fmt.Sprint(i, "-", step))
				op := porcupine.Operation{Input: in, Call: now()}
				out, saw := u.do(ctx, in)
				op.Output, op.Return = out, now()
				done.step()
				if out.unknown {
					if in.verb == get || in.verb == list {
						continue // it saw nothing
					}
					op.Return = math.MaxInt64
				}
				if saw != nil {
					t.Errorf("%+v: %v", in, saw)
				}
				mu.Lock()
				op.ClientId = len(history) // whoever does not know goes on as somebody else
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	if disturbed {
		random := rand.New(rand.NewPCG(n, 1000))
		for at := 0; ; {
			at += steps/10 + random.IntN(steps/10)
			if at > steps*8/10 || !done.reach(ctx, at) {
				break
			}
			switch random.IntN(4) {
			case 0:
				c.restart(random.IntN(2))
			case 1:
				c.crash(random.IntN(2))
			default:
				c.killStore(time.Duration(random.IntN(200)) * time.Millisecond)
			}
		}
	}
	wg.Wait()
	reads, unknown := 0, 0
	for _, op := range history {
		in, _ := op.Input.(request)
		out, _ := op.Output.(response)
		if in.verb == get || in.verb == list {
			reads++
		}
		if out.unknown {
			unknown++
		}
	}
	t.Logf("%d operations, %d of them reads, %d with an unknown outcome", len(history), reads, unknown)
	if reads < steps/10 {
		t.Error("too few reads to tell anything")
	}
	return history
}

// user does one thing after the other.
type user struct {
	random  *rand.Rand
	cluster *cluster
	known   map[string]int64 // resourceVersions
}

func (u *user) choose(value string) request {
	in := request{name: fmt.Sprint("r", u.random.IntN(4)), value: value}
	in.verb = []verb{get, get, get, list, list, create, update, update, patch, remove}[u.random.IntN(10)]
	if (in.verb == update || in.verb == remove) && u.random.IntN(2) == 0 {
		in.least = u.known[in.name]
	}
	return in
}

// userTimeout is how long a user waits for one answer.
const userTimeout = 5 * time.Second

// do carries out one operation. The error is one that cannot be.
func (u *user) do(ctx context.Context, in request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, userTimeout)
	defer cancel()
	conn := u.cluster.conns[u.random.IntN(2)]
	maps, ready := corev1.NewConfigMapServiceClient(conn), grpc.WaitForReady(true)
	obj := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: in.name}, Data: map[string]string{"v": in.value}}
	var got *corev1.ConfigMap
	var err error
	switch in.verb {
	case get:
		got, err = maps.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: in.name}, ready)
	case list:
		var items []item
		items, _, err = listAll(ctx, conn, configMaps.service, &metav1.ListRequest{Namespace: "default", FieldSelector: "metadata.name=" + in.name})
		if err == nil && len(items) == 0 {
			return response{reason: apierr.ReasonNotFound}, nil
		}
		if err == nil {
			got, err = parseConfig(items[0])
		}
	case create:
		got, err = maps.Create(ctx, &corev1.CreateConfigMapRequest{Object: obj}, ready)
	case update:
		if in.least != 0 {
			obj.Metadata.ResourceVersion = str(in.least)
		}
		got, err = maps.Update(ctx, &corev1.UpdateConfigMapRequest{Object: obj}, ready)
	case patch:
		got, err = maps.Patch(ctx, &metav1.PatchRequest{
			Namespace: "default", Name: in.name, Type: metav1.PatchType_PATCH_TYPE_MERGE, Patch: []byte(fmt.Sprintf(`{"data":{"v":%q}}`, in.value)),
		}, ready)
	case remove:
		options := &metav1.DeleteOptions{}
		if in.least != 0 {
			options.Preconditions = &metav1.Preconditions{ResourceVersion: ptr(str(in.least))}
		}
		got, err = maps.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: in.name, Options: options}, ready)
	}
	err = apierr.FromStatus(err)
	out := response{reason: apierr.ReasonOf(err)}
	switch {
	case err == nil:
		out.reason, out.value = "", got.GetData()["v"]
		if out.revision, err = strconv.ParseInt(got.GetMetadata().GetResourceVersion(), 10, 64); err == nil {
			u.known[in.name] = out.revision
		}
		return out, err
	case apierr.IsNotFound(err), apierr.IsAlreadyExists(err) && in.verb == create, apierr.IsConflict(err) && in.least != 0:
		return out, nil
	case apierr.IsUnavailable(err), apierr.IsCanceled(err), apierr.IsTimeout(err), apierr.IsConflict(err) && in.verb >= update:
		return response{unknown: true}, nil
	}
	return out, err
}

func ptr[T any](v T) *T { return &v }

// The check must be able to fail: a store that reads stale values, loses writes or does them twice is found out.
func TestCheckerFindsWhatIsNotLinearizable(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(storage.Store) storage.Store
		want porcupine.CheckResult
	}{
		"nothing":     {nil, porcupine.Ok},
		"stale reads": {func(s storage.Store) storage.Store { return &stale{Store: s} }, porcupine.Illegal},
		"lost writes": {forgetMany, porcupine.Illegal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				history := record(t, newCluster(t, inMemory(t), c.wrap), 7, 600, false)
				if result := judgeHistory(history); result != c.want {
					t.Errorf("the history is %s, want %s", result, c.want)
				}
			})
		})
	}
}

// stale is a store that now and then reads what was there before.
type stale struct {
	storage.Store

	mu    sync.Mutex
	reads int
	old   map[string]storage.Entry
}

func (s *stale) Get(ctx context.Context, key string) (storage.Entry, bool, int64, error) {
	e, found, revision, err := s.Store.Get(ctx, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.old == nil {
		s.old = map[string]storage.Entry{}
	}
	s.reads++
	if old, ok := s.old[key]; ok && s.reads%10 == 0 {
		return old, true, revision, err
	}
	if found && s.reads%3 == 0 {
		s.old[key] = e
	}
	return e, found, revision, err
}
