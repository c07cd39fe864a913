package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"trireme.dev/services/apiserver/internal/storage"
)

const (
	// batchOps and batchBytes bound a batch. etcd takes 1.5 MiB unless it is told otherwise, and a batch must not hold up
	// others by its size.
	batchOps   = 256
	batchBytes = 1 << 20
	// joinOps and joinBytes bound what joins a batch: a gang is a batch of its own.
	joinOps   = 16
	joinBytes = 256 << 10
	// defaultMaxOps is what etcd takes that was not asked.
	defaultMaxOps = 128
	// patience is how long a flight holds up others: a member that does not answer must not stop all writes.
	patience = 200 * time.Millisecond
	// batchTimeout is longer than etcd's own patience with a transaction and than the time in which a dead connection is
	// noticed.
	batchTimeout = 20 * time.Second
)

// group commits small writes that are independent of each other in batches. A write is sent at once where none is under
// way; what comes meanwhile gathers and goes as one transaction. The writes of a batch get the same revision.
//
//	Commit ── nothing under way ──▶ alone ─┐
//	   └───── a flight is ──▶ queue ──▶ batch ──▶ landed, or late: what has gathered departs
//
// A batch is first sent under the conditions of all its writes, which is what etcd does with the least work. Where one
// does not hold, each becomes a transaction within the transaction, with an outcome of its own.
//
// etcd asks all conditions of a transaction before it changes anything. So no two writes of a batch may name the same
// key, unless both only ask about it: the second waits for the next batch.
type group struct {
	store *Store

	mu      sync.Mutex
	current *flight // what holds up others; nil for none
	queue   []*write
	keys    map[string]bool // of the batch that is being made; true for those that it writes
}

// flight is a request that is under way.
type flight struct{ late *time.Timer }

// write is a commit that waits.
type write struct {
	txn   storage.Txn
	bytes int
	done  chan struct{} // closed once revision and err are set

	batch    *batch // nil while it is in the queue; guarded by group.mu
	revision int64
	err      error
}

// batch is what is sent together.
type batch struct {
	writes []*write
	// waiting callers; the last that leaves calls cancel. Guarded by group.mu.
	waiting int
	cancel  context.CancelFunc
}

func newGroup(s *Store) *group { return &group{store: s, keys: map[string]bool{}} }

// joins reports whether a commit is small enough to share a batch, and its size.
func joins(txn storage.Txn) (bytes int, ok bool) {
	if len(txn.Then) > joinOps || len(txn.If) > joinOps {
		return 0, false
	}
	for _, op := range txn.Then {
		bytes += len(op.Key) + len(op.Value)
	}
	return bytes, bytes <= joinBytes
}

// commit is Store.Commit for what joins.
func (g *group) commit(ctx context.Context, txn storage.Txn, bytes int) (int64, error) {
	g.mu.Lock()
	if g.current == nil {
		f := g.depart()
		g.mu.Unlock()
		defer g.landed(f)
		return g.store.commit(ctx, txn)
	}
	w := &write{txn: txn, bytes: bytes, done: make(chan struct{})}
	g.queue = append(g.queue, w)
	g.mu.Unlock()
	select {
	case <-w.done:
		return w.revision, w.err
	case <-ctx.Done():
		g.leave(w)
		return 0, translate("commit", txn.Then[0].Key, ctx.Err())
	}
}

// leave takes back a write whose caller waits no longer. One that is on its way may happen or not.
func (g *group) leave(w *write) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.batch == nil {
		g.queue = slices.DeleteFunc(g.queue, func(q *write) bool { return q == w })
		return
	}
	if w.batch.waiting--; w.batch.waiting == 0 {
		w.batch.cancel()
	}
}

// depart begins a flight. g.mu is held.
func (g *group) depart() *flight {
	f := &flight{}
	g.current = f
	f.late = time.AfterFunc(patience, func() { g.next(f) })
	return f
}

func (g *group) landed(f *flight) {
	f.late.Stop()
	g.next(f)
}

// next lets what has gathered depart, once f holds it up no longer.
func (g *group) next(f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current != f {
		return // f was late, and others went before it landed
	}
	g.current = nil
	if len(g.queue) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	b, f := g.board(cancel), g.depart()
	go func() { // it ends soon after its last caller has left
		defer cancel()
		defer g.landed(f)
		g.send(ctx, b.writes)
	}()
}

// board makes a batch of those that have waited longest. g.mu is held.
func (g *group) board(cancel context.CancelFunc) *batch {
	b := &batch{cancel: cancel}
	limit, ops, bytes := g.limit(), 0, 0
	clear(g.keys)
	left := g.queue[:0]
	for _, w := range g.queue {
		n := g.ops(w.txn)
		full := len(b.writes) > 0 && (ops+n > limit || bytes+w.bytes > batchBytes)
		if full || !g.claim(w.txn) {
			left = append(left, w)
			continue
		}
		w.batch = b
		ops += n
		bytes += w.bytes
		b.writes = append(b.writes, w)
	}
	clear(g.queue[len(left):])
	g.queue = left
	b.waiting = len(b.writes)
	return b
}

// limit of operations in a batch. Where each write is a transaction of its own, etcd counts them and the operations of
// the largest.
func (g *group) limit() int {
	most := g.store.maxOps
	if most == 0 {
		most = defaultMaxOps
	}
	return min(batchOps, most-joinOps)
}

// ops is what etcd counts of a write in the batch: what another asks already is asked once.
func (g *group) ops(txn storage.Txn) int {
	asks := 0
	for _, c := range txn.If {
		if _, known := g.keys[c.Key]; !known {
			asks++
		}
	}
	return max(asks, len(txn.Then))
}

// claim takes the keys of a write for the batch, unless one is taken already.
func (g *group) claim(txn storage.Txn) bool {
	for _, c := range txn.If {
		if written := g.keys[c.Key]; written {
			return false
		}
	}
	for _, op := range txn.Then {
		if _, taken := g.keys[op.Key]; taken {
			return false
		}
	}
	for _, c := range txn.If {
		g.keys[c.Key] = false
	}
	for _, op := range txn.Then {
		g.keys[op.Key] = true
	}
	return true
}

// send commits a batch and tells each write what became of it.
func (g *group) send(ctx context.Context, writes []*write) {
	if len(writes) == 1 {
		g.alone(ctx, writes[0])
		return
	}
	resp, err := g.together(ctx, writes)
	if err == nil && resp.Succeeded {
		for _, w := range writes {
			w.finish(resp.Header.Revision, nil)
		}
		return
	}
	if err == nil {
		resp, err = g.each(ctx, writes)
	}
	switch {
	case err == nil:
		for i, w := range writes {
			inner := resp.Responses[i].GetResponseTxn()
			if inner.GetSucceeded() {
				w.finish(resp.Header.Revision, nil)
			} else {
				w.finish(0, conflictOf(w.txn, inner.GetResponses()))
			}
		}
	case refused(err):
		// Nothing has happened, because of one or because of all together.
		for _, w := range writes {
			g.alone(ctx, w)
		}
	default:
		for _, w := range writes {
			w.finish(unanswered(0, translate("commit", w.txn.Then[0].Key, err)))
		}
	}
}

// together asks for all writes or none.
func (g *group) together(ctx context.Context, writes []*write) (*clientv3.TxnResponse, error) {
	conditions := make([]clientv3.Cmp, 0, len(writes))
	then := make([]clientv3.Op, 0, len(writes))
	asked := make(map[storage.Condition]struct{}, len(writes))
	for _, w := range writes {
		for _, c := range w.txn.If {
			if _, twice := asked[c]; twice {
				continue // several hang on the same lease
			}
			asked[c] = struct{}{}
			conditions = append(conditions, conditionOf(c))
		}
		for _, op := range w.txn.Then {
			then = append(then, g.store.operationOf(op))
		}
	}
	return g.store.client.Txn(ctx).If(conditions...).Then(then...).Commit()
}

// each asks for every write whose conditions hold.
func (g *group) each(ctx context.Context, writes []*write) (*clientv3.TxnResponse, error) {
	ops := make([]clientv3.Op, len(writes))
	for i, w := range writes {
		ops[i] = clientv3.OpTxn(g.store.requestOf(w.txn))
	}
	return g.store.client.Txn(ctx).Then(ops...).Commit()
}

func (g *group) alone(ctx context.Context, w *write) {
	w.finish(unanswered(g.store.commit(ctx, w.txn)))
}

func (w *write) finish(revision int64, err error) {
	w.revision, w.err = revision, err
	close(w.done)
}

// unanswered makes an end of the batch's own time what it is to those who still wait: nobody knows what happened.
func unanswered(revision int64, err error) (int64, error) {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		// Not wrapped: it is the batch's context that ended, and not the caller's.
		return 0, fmt.Errorf("%w: no answer within %s: %s", storage.ErrUnavailable, batchTimeout, err.Error())
	}
	return revision, err
}

// refused reports whether etcd has said that it did nothing, for a reason that is in the request.
func refused(err error) bool {
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return true // which deletions alone are not concerned by
	}
	var server rpctypes.EtcdError
	if !errors.As(err, &server) {
		return false
	}
	switch server.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition:
		return true
	}
	return false
}
