package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/etcd"
	"trireme.dev/services/apiserver/internal/watchcache"
)

// threeMembers starts a cluster of three.
func threeMembers(t *testing.T) []*embed.Etcd {
	t.Helper()
	configs := make([]*embed.Config, 3)
	cluster := ""
	for i := range configs {
		c := embed.NewConfig()
		c.Name, c.Dir, c.UnsafeNoFsync = fmt.Sprint("m", i), t.TempDir(), true
		client, peer := freeURL(t), freeURL(t)
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		c.TickMs, c.ElectionMs = 50, 500
		c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		cluster += "," + c.Name + "=" + peer.String()
		configs[i] = c
	}
	members := make([]*embed.Etcd, len(configs))
	for i, c := range configs {
		c.InitialCluster = cluster[1:]
		var err error
		if members[i], err = embed.StartEtcd(c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(members[i].Close)
	}
	for _, m := range members {
		select {
		case <-m.Server.ReadyNotify():
		case <-time.After(20 * time.Second):
			t.Fatal("no cluster")
		}
	}
	return members
}

func freeURL(t *testing.T) url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

func clientOf(t *testing.T, members ...*embed.Etcd) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Config().ListenClientUrls[0].Host)
	}
	c, err := etcd.Dial(etcd.ClientConfig{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// object returns stored bytes, which a cache keeps only where they are an object.
func object(t *testing.T, value string) []byte {
	t.Helper()
	b, err := envelope.Encode(&corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "a", Name: "1"}, Data: map[string]string{"v": value}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// progressOf returns a function that asks a watch how far it is.
func progressOf(t *testing.T, client *clientv3.Client, prefix string) func() int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	responses := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created, ok := <-responses; !ok || !created.Created {
		t.Fatalf("no watch: %v", created.Err())
	}
	return func() int64 {
		if err := client.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case resp := <-responses:
				if err := resp.Err(); err != nil {
					t.Fatal(err)
				}
				if resp.IsProgressNotify() {
					return resp.Header.Revision
				}
			case <-time.After(20 * time.Second):
				t.Fatal("no progress")
			}
		}
	}
}

// split is a store that reads and writes at some members, and watches at others.
type split struct {
	storage.Store
	watches storage.Store
}

func (s split) Watch(ctx context.Context, prefix string, opts storage.WatchOptions, emit func(storage.Batch) error) error {
	return s.watches.Watch(ctx, prefix, opts, emit)
}

// A cache that watches at a member which is cut off from the others knows an old state, and progress from there says
// that it is current. A consistent read must not believe it: it fails, or waits, and is never stale.
func TestConsistentReadsFromAPartitionedMember(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds; the full run has them")
	}
	const prefix = "/trireme/core/configmaps/"
	members := threeMembers(t)
	alone := members[2]
	majority := etcd.New(clientOf(t, members[0], members[1]), 0)
	minority := etcd.New(clientOf(t, alone), 0)

	caches := map[string]*watchcache.Cache{}
	for name, store := range map[string]storage.Store{
		"all at the lonely member":        minority,
		"watch only at the lonely member": split{majority, minority},
	} {
		c := watchcache.New(watchcache.Config{
			Store: store, Prefix: "/trireme/", Logger: slog.New(slog.DiscardHandler), Kinds: []watchcache.Kind{{Prefix: prefix}},
		})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		caches[name] = c
	}
	before := put(t, majority, prefix+"a/1", string(object(t, "old")))
	for name, c := range caches {
		s, err := c.Consistent(t.Context(), prefix, 20*time.Second)
		if err != nil || s.Revision < before {
			t.Fatalf("%s, before the cut: %v", name, err)
		}
	}

	// Progress as a cache would get it that trusted it alone, from a stream that stays although there is no leader.
	told := progressOf(t, clientOf(t, alone), prefix)
	if revision := told(); revision < before {
		t.Fatalf("before the cut: progress at %d, %d was committed", revision, before)
	}

	for _, m := range members[:2] {
		m.Server.CutPeer(alone.Server.MemberID())
		alone.Server.CutPeer(m.Server.MemberID())
	}
	changed := object(t, "new")
	written := make(chan int64, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for ctx.Err() == nil {
			// An election may be under way where the lonely member led.
			revision, err := majority.Commit(ctx, storage.Txn{Then: []storage.Op{{Key: prefix + "a/1", Value: changed}}})
			if err == nil {
				written <- revision
				return
			}
		}
		written <- 0
	}()
	after := <-written
	if after == 0 {
		t.Fatal("the majority takes no writes")
	}
	// The lonely member goes on telling what it knows, as if that were all: this is why progress proves nothing.
	if revision := told(); revision >= after || revision < before {
		t.Fatalf("progress of the lonely member is %d, it knew %d, and cannot know of %d: what is shown below shows nothing", revision, before, after)
	}
	for name, c := range caches {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		s, err := c.Consistent(ctx, prefix, 2*time.Second)
		cancel()
		switch {
		case err == nil && s.Revision < after:
			t.Errorf("%s: stale: at %d, %d was committed before", name, s.Revision, after)
		case err == nil:
			t.Errorf("%s: at %d, which the lonely member cannot know", name, s.Revision)
		case !errors.Is(err, watchcache.ErrBehind) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, storage.ErrUnavailable):
			t.Logf("%s: %v", name, err)
		}
		// What it has may still be had by those who ask for no more.
		if s, err := c.Current(t.Context(), prefix); err != nil || s.Revision < before {
			t.Errorf("%s: any state: %v", name, err)
		}
	}

	for _, m := range members[:2] {
		m.Server.MendPeer(alone.Server.MemberID())
		alone.Server.MendPeer(m.Server.MemberID())
	}
	for name, c := range caches {
		var err error
		for try := 0; try < 10; try++ {
			var s *watchcache.Snapshot
			if s, err = c.Consistent(t.Context(), prefix, 5*time.Second); err == nil {
				if o, ok := s.Get(prefix + "a/1"); !ok || !bytes.Equal(o.Stored(), changed) {
					t.Errorf("%s, mended: the object is there: %v, and not as it was written", name, ok)
				}
				break
			}
		}
		if err != nil {
			t.Errorf("%s, mended: %v", name, err)
		}
	}
}
