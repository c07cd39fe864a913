package server_test

import (
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"trireme.dev/kit/rpc"
	"trireme.dev/services/apiserver/internal/server"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/etcd"
	"trireme.dev/services/apiserver/internal/storage/etcd/embedded"
	"trireme.dev/services/apiserver/internal/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var seedFlag = flag.Uint64("seed", 0, "replay the choices of this seed; 0 takes a new one")

// seed returns the seed of a test and prints it.
func seed(t *testing.T) uint64 {
	n := *seedFlag
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("to replay the choices: -seed=%d", n)
	return n
}

// engine opens a store, the same one again after close.
type engine struct {
	open func() storage.Store
	// close ends the store's process, where it has one.
	close func()
}

func engines(t *testing.T) map[string]func(t *testing.T) *engine {
	return map[string]func(t *testing.T) *engine{
		"memory": func(*testing.T) *engine {
			s := memory.New(memory.Config{})
			return &engine{open: func() storage.Store { return s }, close: func() {}}
		},
		"etcd": func(t *testing.T) *engine {
			dir := t.TempDir()
			var srv *embedded.Server
			return &engine{
				open: func() storage.Store {
					var err error
					if srv, err = embedded.Start(context.Background(), embedded.Config{Dir: dir, NoFsync: true, Logger: slog.New(slog.DiscardHandler)}); err != nil {
						t.Fatal(err)
					}
					return etcd.New(srv.Client(), embedded.MaxTxnOps)
				},
				close: func() { srv.Close() },
			}
		},
	}
}

// cluster is two gateways on one store.
type cluster struct {
	t      *testing.T
	engine *engine
	store  storage.Store
	conns  [2]*grpc.ClientConn

	mu        sync.Mutex
	listeners [2]*bufconn.Listener
	stops     [2]func()
}

func newCluster(t *testing.T, e *engine) *cluster {
	c := &cluster{t: t, engine: e, store: e.open()}
	for i := range c.conns {
		c.start(i)
		var err error
		c.conns[i], err = grpc.NewClient("passthrough:///gateway",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				c.mu.Lock()
				l := c.listeners[i]
				c.mu.Unlock()
				return l.DialContext(ctx)
			}),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for i := range c.conns {
			_ = c.conns[i].Close() // nothing is under way
			c.stop(i)
		}
		e.close()
	})
	return c
}

func (c *cluster) start(i int) {
	srv, err := server.New(server.Deps{Store: c.store, Logger: slog.New(slog.DiscardHandler), RPC: rpc.ServerConfig{Name: "apiserver", DrainTimeout: time.Second}})
	if err != nil {
		c.t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx, lis) }()
	select {
	case <-srv.Ready():
	case err := <-ended:
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.listeners[i] = lis
	c.stops[i] = func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("gateway: %v", err)
		}
	}
	c.mu.Unlock()
}

func (c *cluster) stop(i int) {
	c.mu.Lock()
	stop := c.stops[i]
	c.mu.Unlock()
	stop()
}

// restart ends a gateway and starts another in its place.
func (c *cluster) restart(i int) {
	c.stop(i)
	c.start(i)
}

// restartAll ends the store as well.
func (c *cluster) restartAll() {
	c.stop(0)
	c.stop(1)
	c.engine.close()
	c.store = c.engine.open()
	c.start(0)
	c.start(1)
}
