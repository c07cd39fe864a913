package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"trireme.dev/services/apiserver/internal/storage"
)

// leases lets keys that live for the same time share a lease: one for each minute or so, however many keys are written
// in it. A lease costs etcd far more than a key.
type leases struct {
	client *clientv3.Client

	mu     sync.Mutex
	latest map[time.Duration]lease // by how long keys live
}

type lease struct {
	id clientv3.LeaseID
	// until is when it is too old for new keys: they would live too short.
	until time.Time
}

func newLeases(client *clientv3.Client) *leases {
	return &leases{client: client, latest: map[time.Duration]lease{}}
}

// leaseTries is how often a commit is tried whose lease is gone.
const leaseTries = 3

// window is how long a lease serves new keys, and so by how much they may outlive their time.
func window(ttl time.Duration) time.Duration { return max(min(ttl/20, time.Minute), time.Second) }

// ready sees to it that there is a lease for keys that live so long.
func (l *leases) ready(ctx context.Context, ttl time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock() // others wait for the same lease
	now := time.Now()
	if now.Before(l.latest[ttl].until) {
		return nil
	}
	granted, err := l.client.Grant(ctx, int64((ttl+window(ttl)+time.Second-1)/time.Second))
	if err != nil {
		return err
	}
	l.latest[ttl] = lease{granted.ID, now.Add(window(ttl))}
	return nil
}

// id is the lease of keys that live so long; ready has been called.
func (l *leases) id(ttl time.Duration) clientv3.LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest[ttl].id
}

// forget makes the next call of ready ask for a new lease. Who has the old one at hand is told by etcd that it is gone.
func (l *leases) forget(ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest[ttl] = lease{id: l.latest[ttl].id}
}

// longest is the longest life of the keys of a commit.
func longest(txn storage.Txn) (ttl time.Duration) {
	for _, op := range txn.Then {
		ttl = max(ttl, op.TTL)
	}
	return ttl
}

// commitLeased is Commit for keys that do not stay. A lease that is gone, as after a restored backup, is replaced.
func (s *Store) commitLeased(ctx context.Context, txn storage.Txn, ttl time.Duration) (int64, error) {
	for i := range txn.Then {
		if op := txn.Then[i]; op.TTL > 0 && op.TTL != ttl {
			return 0, errors.New("commit of keys that live for different times")
		}
	}
	for try := 1; ; try++ {
		if err := s.leases.ready(ctx, ttl); err != nil {
			return 0, translate("grant a lease for", txn.Then[0].Key, err)
		}
		revision, err := s.commitAny(ctx, txn)
		if try == leaseTries || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return revision, err
		}
		s.leases.forget(ttl)
	}
}
