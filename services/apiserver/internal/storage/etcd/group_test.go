package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/etcd"
	"trireme.dev/services/apiserver/internal/storage/etcd/embedded"
)

// held is etcd with the first transaction held back until release is closed.
type held struct {
	clientv3.KV

	once             sync.Once
	arrived, release chan struct{}
	sent             chan int // operations of each later transaction
}

type heldTxn struct {
	clientv3.Txn

	kv  *held
	ctx context.Context
	ops int
}

func (h *held) Txn(ctx context.Context) clientv3.Txn { return &heldTxn{h.KV.Txn(ctx), h, ctx, 0} }

func (t *heldTxn) If(cs ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cs...); return t }

func (t *heldTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn, t.ops = t.Txn.Then(ops...), len(ops)
	return t
}

func (t *heldTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *heldTxn) Commit() (*clientv3.TxnResponse, error) {
	first := false
	t.kv.once.Do(func() { first = true })
	if !first {
		t.kv.sent <- t.ops
		return t.Txn.Commit()
	}
	close(t.kv.arrived)
	select {
	case <-t.kv.release:
		return t.Txn.Commit()
	case <-t.ctx.Done():
		return nil, t.ctx.Err()
	}
}

func beginHeld(t *testing.T) (*etcd.Store, *held) {
	t.Helper()
	srv, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), NoFsync: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	client := srv.Client()
	kv := &held{KV: client.KV, arrived: make(chan struct{}), release: make(chan struct{}), sent: make(chan int, 1000)}
	client.KV = kv
	return etcd.New(client, embedded.MaxTxnOps), kv
}

type outcome struct {
	key      string
	revision int64
	err      error
}

// commits each txn at once with the others and returns what became of them, by the key written.
func commits(ctx context.Context, s *etcd.Store, txns ...storage.Txn) <-chan outcome {
	out := make(chan outcome, len(txns))
	for _, txn := range txns {
		go func() {
			revision, err := s.Commit(ctx, txn)
			out <- outcome{txn.Then[0].Key, revision, err}
		}()
	}
	return out
}

func creation(key string) storage.Txn {
	return storage.Txn{If: []storage.Condition{{Key: key}}, Then: []storage.Op{{Key: key, Value: []byte(key)}}}
}

// What gathers while a commit is under way goes together, even where that one never lands; one that fails fails alone.
func TestWritesThatGatherAreOneTransaction(t *testing.T) {
	s, kv := beginHeld(t)
	first := commits(t.Context(), s, creation("/first"))
	<-kv.arrived
	var txns []storage.Txn
	for i := range 100 {
		txns = append(txns, creation(fmt.Sprintf("/k/%d", i)))
	}
	// The flight is late, since it never lands: so what has gathered by then goes without it.
	others := commits(t.Context(), s, txns...)
	revisions := map[int64]int{}
	for range txns {
		o := <-others
		if o.err != nil {
			t.Fatalf("%s: %v", o.key, o.err)
		}
		revisions[o.revision]++
	}
	if len(revisions) > len(txns)/2 {
		t.Errorf("%d writes got %d revisions: they did not gather", len(txns), len(revisions))
	}
	total := 0
	for len(kv.sent) > 0 {
		total += <-kv.sent
	}
	if total != len(txns) {
		t.Errorf("%d writes took %d operations", len(txns), total)
	}
	close(kv.release)
	if o := <-first; o.err != nil || revisions[o.revision] > 0 {
		t.Errorf("the first: %+v", o)
	}
}

// One whose condition does not hold fails alone, and is told what there is.
func TestAConflictInABatchIsItsOwn(t *testing.T) {
	s, kv := beginHeld(t)
	close(kv.release)
	taken := put(t, s, "/taken", "1")
	for round := range 5 {
		var txns []storage.Txn
		for i := range 40 {
			txns = append(txns, creation(fmt.Sprintf("/k/%d/%d", round, i)))
		}
		txns = append(txns, creation("/taken"))
		results := commits(t.Context(), s, txns...)
		for range txns {
			o := <-results
			var conflict *storage.ConflictError
			switch {
			case o.key != "/taken":
				if o.err != nil {
					t.Errorf("%s: %v", o.key, o.err)
				}
			case !errors.As(o.err, &conflict) || len(conflict.Current) != 1 || conflict.Current[0].Revision != taken:
				t.Errorf("create of what is there: %v", o.err)
			}
		}
	}
}

// A caller that leaves need not wait for others, and does not take the others of its batch along.
func TestACallerThatLeaves(t *testing.T) {
	s, kv := beginHeld(t)
	first := commits(t.Context(), s, creation("/first"))
	<-kv.arrived
	ctx, cancel := context.WithCancel(t.Context())
	leaving := commits(ctx, s, creation("/leaves"))
	cancel()
	if o := <-leaving; !errors.Is(o.err, context.Canceled) {
		t.Errorf("who leaves: %+v", o)
	}
	staying := commits(t.Context(), s, creation("/stays"), creation("/stays too"))
	for range 2 {
		if o := <-staying; o.err != nil {
			t.Errorf("%s: %v", o.key, o.err)
		}
	}
	close(kv.release)
	if o := <-first; o.err != nil {
		t.Error(o.err)
	}
}

// Writes that ask about a key that none of them writes go together, and one for which it is not as it should be fails alone.
func TestWritesThatAskAboutTheSameKeyGoTogether(t *testing.T) {
	s, kv := beginHeld(t)
	leased, err := kv.KV.Put(t.Context(), "/lease", "held")
	if err != nil {
		t.Fatal(err)
	}
	first := commits(t.Context(), s, creation("/first"))
	<-kv.arrived
	under := func(key string, revision int64) storage.Txn {
		txn := creation(key)
		txn.If = append(txn.If, storage.Condition{Key: "/lease", Revision: revision})
		return txn
	}
	var txns []storage.Txn
	for i := range 50 {
		txns = append(txns, under(fmt.Sprintf("/k/%d", i), leased.Header.Revision))
	}
	txns = append(txns, under("/late", leased.Header.Revision-1))
	results := commits(t.Context(), s, txns...)
	revisions := map[int64]bool{}
	for range txns {
		o := <-results
		var conflict *storage.ConflictError
		switch {
		case o.key == "/late":
			if !errors.As(o.err, &conflict) || len(conflict.Current) != 1 || conflict.Current[0].Key != "/lease" {
				t.Errorf("%s: %v, want a conflict about the lease", o.key, o.err)
			}
		case o.err != nil:
			t.Errorf("%s: %v", o.key, o.err)
		default:
			revisions[o.revision] = true
		}
	}
	if len(revisions) > len(txns)/2 {
		t.Errorf("%d writes got %d revisions: they did not gather", len(txns), len(revisions))
	}
	close(kv.release)
	if o := <-first; o.err != nil {
		t.Error(o.err)
	}
	// Who renews the lease goes at a moment of its own: every other write is before it or after it.
	txns = []storage.Txn{{If: []storage.Condition{{Key: "/lease", Revision: leased.Header.Revision}}, Then: []storage.Op{{Key: "/lease", Value: []byte("passed on")}}}}
	for i := range 50 {
		txns = append(txns, under(fmt.Sprintf("/l/%d", i), leased.Header.Revision))
	}
	results = commits(t.Context(), s, txns...)
	var passed, last int64
	for range txns {
		o := <-results
		var conflict *storage.ConflictError
		switch {
		case o.err == nil && o.key == "/lease":
			passed = o.revision
		case o.err == nil:
			last = max(last, o.revision)
		case !errors.As(o.err, &conflict):
			t.Errorf("%s: %v", o.key, o.err)
		}
	}
	if passed == 0 || last >= passed {
		t.Errorf("the lease was passed on at %d, the last write under it is of %d", passed, last)
	}
}
