// Package etcd keeps all state in etcd. It is the only package that imports etcd's client; its subpackage embedded
// starts an etcd in this process.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"trireme.dev/services/apiserver/internal/storage"
)

// Flags name what an etcd needs to be started with for the largest transactions; messages repeat them.
const Flags = "--max-txn-ops=10000 --max-request-bytes=33554432"

// probeKey is read to learn the revision and the limits; nothing is ever stored there.
const probeKey = "/trireme-probe"

// Store is a client of etcd as storage.Store. Create it with New.
type Store struct {
	// DefragmentLocal defragments the etcd that runs in this process; nil where it runs elsewhere.
	DefragmentLocal func() error

	client *clientv3.Client
	maxOps int
	group  *group
	leases *leases
	// watches counts them, for their streams' names.
	watches atomic.Uint64
}

var _ storage.Store = (*Store)(nil)

// New returns a store over a client, which stays the caller's to close. MaxOps is the largest transaction that etcd
// takes; 0 where that is not known.
func New(client *clientv3.Client, maxOps int) *Store {
	s := &Store{client: client, maxOps: maxOps}
	s.group, s.leases = newGroup(s), newLeases(client)
	return s
}

// Probe finds out how many operations etcd takes in one transaction, by offering it reads that are never done: its
// condition holds, and the reads are what would be done otherwise.
func (s *Store) Probe(ctx context.Context) error {
	for _, n := range []int{10000, 5000, 2000, 1000, 512, 256, 128} {
		ops := make([]clientv3.Op, n)
		for i := range ops {
			ops[i] = clientv3.OpGet(probeKey, clientv3.WithCountOnly())
		}
		_, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(probeKey), ">", -1)).Else(ops...).Commit()
		switch {
		case err == nil:
			s.maxOps = n
			return nil
		case !errors.Is(err, rpctypes.ErrTooManyOps):
			return translate("probe", "", err)
		}
	}
	s.maxOps = 64
	return nil
}

// MaxOps is the largest number of operations of one commit.
func (s *Store) MaxOps() int { return s.maxOps }

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) (storage.Entry, bool, int64, error) {
	resp, err := s.client.Get(ctx, key)
	if err != nil {
		return storage.Entry{}, false, 0, translate("get", key, err)
	}
	if len(resp.Kvs) == 0 {
		return storage.Entry{}, false, resp.Header.Revision, nil
	}
	return entry(resp.Kvs[0]), true, resp.Header.Revision, nil
}

func entry(kv *mvccpb.KeyValue) storage.Entry {
	return storage.Entry{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision, Created: kv.CreateRevision}
}

// List implements storage.Store.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	end := storage.PrefixEnd(prefix)
	if end == "" {
		end = "\x00" // etcd's way to say: to the last key
	}
	options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(opts.Limit)}
	if opts.Revision > 0 {
		options = append(options, clientv3.WithRev(opts.Revision))
	}
	// etcd has no empty key, and this is the first after it.
	from := cmp.Or(max(prefix, opts.From), "\x00")
	resp, err := s.client.Get(ctx, from, options...)
	if err != nil {
		return storage.Page{}, translate("list", prefix, err)
	}
	page := storage.Page{
		Entries:  make([]storage.Entry, len(resp.Kvs)),
		Revision: resp.Header.Revision,
		More:     resp.More,
	}
	if opts.Revision > 0 {
		page.Revision = opts.Revision
	}
	if page.More {
		page.Remaining = resp.Count - int64(len(resp.Kvs))
	}
	for i, kv := range resp.Kvs {
		page.Entries[i] = entry(kv)
	}
	return page, nil
}

// Commit implements storage.Store.
func (s *Store) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if len(txn.Then) == 0 {
		return 0, fmt.Errorf("commit without operations")
	}
	first := txn.Then[0].Key
	if n := max(len(txn.Then), len(txn.If)); s.maxOps > 0 && n > s.maxOps {
		return 0, fmt.Errorf("commit %s and %d more: %w: etcd takes %d operations at once; start it with %s",
			first, n-1, storage.ErrTooLarge, s.maxOps, Flags)
	}
	if err := ctx.Err(); err != nil {
		return 0, translate("commit", first, err)
	}
	if ttl := longest(txn); ttl > 0 {
		return s.commitLeased(ctx, txn, ttl)
	}
	return s.commitAny(ctx, txn)
}

// commitAny commits together with others where that is worth it.
func (s *Store) commitAny(ctx context.Context, txn storage.Txn) (int64, error) {
	if bytes, ok := joins(txn); ok {
		return s.group.commit(ctx, txn, bytes)
	}
	return s.commit(ctx, txn)
}

// commit asks etcd for one commit alone.
func (s *Store) commit(ctx context.Context, txn storage.Txn) (int64, error) {
	conditions, then, otherwise := s.requestOf(txn)
	resp, err := s.client.Txn(ctx).If(conditions...).Then(then...).Else(otherwise...).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return 0, fmt.Errorf("commit %s: %w", txn.Then[0].Key, &storage.NoSpaceError{Quota: s.quota(ctx)})
	}
	if err != nil {
		return 0, translate("commit", txn.Then[0].Key, err)
	}
	if !resp.Succeeded {
		return 0, conflictOf(txn, resp.Responses)
	}
	return resp.Header.Revision, nil
}

// requestOf is a commit as etcd has it. Where a condition does not hold, the answer is at which revisions their keys are.
func (s *Store) requestOf(txn storage.Txn) (conditions []clientv3.Cmp, then, otherwise []clientv3.Op) {
	conditions = make([]clientv3.Cmp, len(txn.If))
	otherwise = make([]clientv3.Op, len(txn.If))
	for i, c := range txn.If {
		conditions[i] = conditionOf(c)
		otherwise[i] = clientv3.OpGet(c.Key, clientv3.WithKeysOnly())
	}
	then = make([]clientv3.Op, len(txn.Then))
	for i, op := range txn.Then {
		then[i] = s.operationOf(op)
	}
	return conditions, then, otherwise
}

func conditionOf(c storage.Condition) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Revision)
}

func (s *Store) operationOf(op storage.Op) clientv3.Op {
	if op.Value == nil {
		return clientv3.OpDelete(op.Key)
	}
	var options []clientv3.OpOption
	if op.TTL > 0 {
		options = append(options, clientv3.WithLease(s.leases.id(op.TTL)))
	}
	put := clientv3.OpPut(op.Key, "", options...)
	put.WithValueBytes(op.Value)
	return put
}

// conflictOf reads the answer to a commit whose conditions did not all hold.
func conflictOf(txn storage.Txn, responses []*etcdserverpb.ResponseOp) *storage.ConflictError {
	conflict := &storage.ConflictError{}
	for i, c := range txn.If {
		current := storage.Entry{Key: c.Key}
		if kvs := responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			current = entry(kvs[0])
			current.Value = nil
		}
		if current.Revision != c.Revision {
			conflict.Current = append(conflict.Current, current)
		}
	}
	return conflict
}

// streamKey makes each watch a stream of its own. etcd reports no progress while any watch of a stream is still going
// through history; and etcd's client reads a stream in the loop that also writes to it, so that many watches that end at
// once fill both directions and wait for each other without end.
const streamKey = "trireme-stream"

// Watch implements storage.Store. etcd never splits a revision over responses unless asked for fragments.
func (s *Store) Watch(ctx context.Context, prefix string, opts storage.WatchOptions, emit func(storage.Batch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	// A member that lost the others ends its watches, so that the client goes to another one.
	ctx = clientv3.WithRequireLeader(ctx)
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(opts.After + 1), clientv3.WithProgressNotify()}
	if opts.Previous {
		options = append(options, clientv3.WithPrevKV())
	}
	ctx = metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatUint(s.watches.Add(1), 10))
	if opts.Progress != nil {
		wg.Go(func() { s.askProgress(ctx, opts.Progress) })
	}
	for resp := range s.client.Watch(ctx, prefix, options...) {
		if err := resp.Err(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return translate("watch", prefix, err)
		}
		batch := storage.Batch{Revision: resp.Header.Revision}
		if n := len(resp.Events); n > 0 {
			// The header may be ahead of the events: etcd goes through long histories in several responses.
			batch.Revision = resp.Events[n-1].Kv.ModRevision
			batch.Events = make([]storage.Event, n)
		} else if !resp.IsProgressNotify() {
			continue
		}
		for i, e := range resp.Events {
			out := storage.Event{Key: string(e.Kv.Key), Revision: e.Kv.ModRevision}
			if e.Type == clientv3.EventTypePut {
				// On the wire no bytes are nothing; here nil would be a deletion.
				if out.Value = e.Kv.Value; out.Value == nil {
					out.Value = []byte{}
				}
			}
			switch {
			case e.PrevKv != nil:
				out.Previous, out.PreviousRevision = e.PrevKv.Value, e.PrevKv.ModRevision
			case opts.Previous && !e.IsCreate():
				// What was there before has been compacted away: such an event would claim that the object is new.
				return fmt.Errorf("watch %s after %d: %w", prefix, opts.After, storage.ErrCompacted)
			}
			batch.Events[i] = out
		}
		if err := emit(batch); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch %s: %w", prefix, storage.ErrUnavailable)
}

// askProgress passes requests on to the stream that ctx names. One that fails needs no answer: its watch fails too.
func (s *Store) askProgress(ctx context.Context, requests <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-requests:
			_ = s.client.RequestProgress(ctx)
		}
	}
}

// Revision implements storage.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	resp, err := s.client.Get(ctx, probeKey, clientv3.WithCountOnly())
	if err != nil {
		return 0, translate("revision", "", err)
	}
	return resp.Header.Revision, nil
}

// Compact implements storage.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if _, err := s.client.Compact(ctx, revision); err != nil {
		return translate("compact", fmt.Sprint(revision), err)
	}
	return nil
}

// translate gives etcd's errors the names that the gateway knows.
func translate(op, key string, err error) error {
	var reason error
	var server rpctypes.EtcdError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, rpctypes.ErrCompacted):
		reason = storage.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		reason = storage.ErrFutureRevision
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%s %s: %w: %w; start etcd with %s", op, key, storage.ErrTooLarge, err, Flags)
	case errors.As(err, &server) && (server.Code() == codes.Unavailable || server.Code() == codes.ResourceExhausted):
		reason = storage.ErrUnavailable
	case clientv3.IsConnCanceled(err), status.Code(err) == codes.Unavailable:
		// The latter is the connection's own, which broke before the answer came.
		reason = storage.ErrUnavailable
	}
	if reason != nil {
		return fmt.Errorf("%s %s: %w: %w", op, key, reason, err)
	}
	return fmt.Errorf("%s %s: %w", op, key, err)
}
