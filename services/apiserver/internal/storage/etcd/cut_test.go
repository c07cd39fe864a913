package etcd_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/etcd"
	"trireme.dev/services/apiserver/internal/storage/etcd/embedded"
)

// between stands between a client and a server, and cuts their connections.
type between struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func stand(t *testing.T, server string) *between {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &between{listener: l, server: server}
	b.wg.Go(b.accept)
	t.Cleanup(func() {
		_ = l.Close()
		b.cut()
		b.wg.Wait()
	})
	return b
}

func (b *between) accept() {
	for {
		near, err := b.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", b.server)
		if err != nil {
			_ = near.Close()
			continue
		}
		b.mu.Lock()
		b.conns = append(b.conns, near, far)
		b.mu.Unlock()
		for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
			b.wg.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
			})
		}
	}
}

// cut resets all connections.
func (b *between) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the other side reads a reset
		}
		_ = c.Close()
	}
	b.conns = nil
}

// An answer that got lost with its connection is Unavailable, and nothing else: the write may have happened. Whoever was
// told that it happened finds it.
func TestAnswersLostWithTheConnectionAreUnavailable(t *testing.T) {
	srv, err := embedded.Start(t.Context(), embedded.Config{
		Dir: t.TempDir(), NoFsync: true, ClientListen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	b := stand(t, srv.ClientAddr().String())
	client, err := etcd.Dial(etcd.ClientConfig{Endpoints: []string{b.listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s := etcd.New(client, embedded.MaxTxnOps)
	var mu sync.Mutex
	lost, done := 0, map[string]int64{}
	var wg sync.WaitGroup
	for writer := range 8 {
		wg.Go(func() {
			for i := range 60 {
				if writer == 0 && i%3 == 0 {
					b.cut()
				}
				key := fmt.Sprint("/cut/", writer, "/", i)
				revision, err := s.Commit(t.Context(), storage.Txn{If: []storage.Condition{{Key: key}}, Then: []storage.Op{{Key: key, Value: []byte("1")}}})
				mu.Lock()
				switch {
				case err == nil:
					done[key] = revision
				case errors.Is(err, storage.ErrUnavailable):
					lost++
				default:
					t.Errorf("commit of %s: %v", key, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d commits, %d answers lost", len(done), lost)
	if lost == 0 {
		t.Error("no answer was lost: nothing was tested")
	}
	page, err := etcd.New(srv.Client(), embedded.MaxTxnOps).List(t.Context(), "/cut/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]int64{}
	for _, e := range page.Entries {
		stored[e.Key] = e.Revision
	}
	for key, revision := range done {
		if stored[key] != revision {
			t.Errorf("%s was acknowledged at %d and is at %d", key, revision, stored[key])
		}
	}
	if extra := len(stored) - len(done); extra > lost {
		t.Errorf("%d keys that nobody was told of, %d answers were lost", extra, lost)
	}
}
