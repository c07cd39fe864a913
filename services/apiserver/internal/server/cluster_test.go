package server_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
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

var (
	seedFlag     = flag.Uint64("seed", 0, "replay the choices of this seed; 0 takes a new one")
	durationFlag = flag.Duration("duration", 0, "how long each random test goes on; 0 for a few seconds")
)

// seed returns the seed of a test and prints it.
func seed(t *testing.T) uint64 {
	n := *seedFlag
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("to replay the choices: -seed=%d", n)
	return n
}

// duration returns how long a random test goes on.
func duration(usual time.Duration) time.Duration {
	if *durationFlag > 0 {
		return *durationFlag
	}
	return usual
}

// pause lets time pass between random steps, on which nothing depends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// engine is a store that several gateways share.
type engine struct {
	// open returns a gateway's way to it, which close gives back.
	open func() (store storage.Store, closeIt func())
	// kill ends its process without a warning and start begins it again; nil where there is none.
	kill, start func()
	// severs says that a kill ends what open returned as well: gateways have to be started anew.
	severs bool
}

// inMemory is the engine of tests. It has no process.
func inMemory(*testing.T) *engine {
	s := memory.New(memory.Config{})
	return &engine{open: func() (storage.Store, func()) { return s, func() {} }}
}

// inProcess is an etcd in this process, which can be ended in good order only.
func inProcess(t *testing.T) *engine {
	dir := t.TempDir()
	var srv *embedded.Server
	e := &engine{severs: true}
	e.open = func() (storage.Store, func()) { return etcd.New(srv.Client(), embedded.MaxTxnOps), func() {} }
	e.kill = func() { srv.Close() }
	e.start = func() {
		var err error
		cfg := embedded.Config{Dir: dir, NoFsync: true, Logger: slog.New(slog.DiscardHandler)}
		if srv, err = embedded.Start(context.Background(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	e.start()
	t.Cleanup(func() { srv.Close() })
	return e
}

// etcdBinary finds the etcd that make builds; empty where it has not been built.
func etcdBinary() string {
	if path, err := exec.LookPath("etcd"); err == nil {
		return path
	}
	for dir, err := os.Getwd(); err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if path := filepath.Join(dir, "build", "tools", "etcd"); fileExists(path) {
			return path
		}
	}
	return ""
}

func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// ownProcess is an etcd that is killed with SIGKILL, while its gateways go on; inProcess where its program is not built.
func ownProcess(t *testing.T) *engine {
	binary := etcdBinary()
	if binary == "" {
		t.Log("etcd is not built (make build/tools/etcd): the one in this process is used, and ended in good order")
		return inProcess(t)
	}
	dir, client, peer := t.TempDir(), freeAddress(t), freeAddress(t)
	var cmd *exec.Cmd
	e := &engine{}
	e.start = func() {
		cmd = exec.Command(binary, "--data-dir="+dir, "--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client,
			"--name=m", "--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=m=http://"+peer,
			"--heartbeat-interval=20", "--election-timeout=200", "--log-level=error", "--unsafe-no-fsync",
			"--max-txn-ops=10000", "--max-request-bytes=33554432", "--watch-progress-notify-interval=5s")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	e.kill = func() {
		_ = cmd.Process.Kill() // it may have ended by itself, which Wait tells as well
		_ = cmd.Wait()
	}
	e.open = func() (storage.Store, func()) {
		c, err := etcd.Dial(etcd.ClientConfig{Endpoints: []string{client}})
		if err != nil {
			t.Fatal(err)
		}
		return etcd.New(c, embedded.MaxTxnOps), func() { _ = c.Close() }
	}
	e.start()
	t.Cleanup(func() { e.kill() })
	store, closeIt := e.open()
	defer closeIt()
	for begin := time.Now(); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := store.Revision(ctx)
		cancel()
		if err == nil {
			return e
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("etcd does not start: %v", err)
		}
	}
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// cluster is two gateways on one store.
type cluster struct {
	t        testing.TB
	engine   *engine
	conns    [2]*grpc.ClientConn
	gateways [2]*running

	mu        sync.Mutex
	direct    storage.Store // the test's own way to the store
	listeners [2]*cutting
	wrap      func(storage.Store) storage.Store
}

// running is one gateway until it is stopped.
type running struct {
	cancel context.CancelFunc
	ended  chan error
	give   func()
}

// newCluster starts two gateways. Wrap, where it is not nil, stands between them and the store.
func newCluster(t testing.TB, e *engine, wrap func(storage.Store) storage.Store) *cluster {
	if wrap == nil {
		wrap = func(s storage.Store) storage.Store { return s }
	}
	c := &cluster{t: t, engine: e, wrap: wrap}
	own, giveBack := e.open()
	c.direct = own
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
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond}}),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), // for the gateway to be back
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
		giveBack()
	})
	return c
}

// store is the test's own way to it, past the gateways.
func (c *cluster) store() storage.Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.direct
}

func (c *cluster) start(i int) {
	store, give := c.engine.open()
	srv, err := server.New(server.Deps{Store: c.wrap(store), Logger: slog.New(slog.DiscardHandler), RPC: rpc.ServerConfig{Name: "apiserver", DrainTimeout: time.Second}})
	if err != nil {
		c.t.Fatal(err)
	}
	lis := &cutting{Listener: bufconn.Listen(1 << 20)}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, ended: make(chan error, 1), give: give}
	go func() { r.ended <- srv.Run(ctx, lis) }()
	select {
	case <-srv.Ready():
	case err := <-r.ended:
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.listeners[i] = lis
	c.mu.Unlock()
	c.gateways[i] = r
}

func (c *cluster) stop(i int) {
	r := c.gateways[i]
	r.cancel()
	if err := <-r.ended; err != nil {
		c.t.Errorf("gateway: %v", err)
	}
	r.give()
}

// restart ends a gateway in good order and starts another in its place.
func (c *cluster) restart(i int) {
	c.stop(i)
	c.start(i)
}

// crash cuts all connections of a gateway, so that no answer leaves it any more, then does as restart.
func (c *cluster) crash(i int) {
	c.mu.Lock()
	l := c.listeners[i]
	c.mu.Unlock()
	l.cut()
	c.restart(i)
}

// killStore ends the store's process and starts it again. Gateways that cannot outlive it are started anew.
func (c *cluster) killStore(down time.Duration) {
	if c.engine.kill == nil {
		c.restart(0)
		c.restart(1)
		return
	}
	if c.engine.severs {
		c.stop(0)
		c.stop(1)
	}
	c.engine.kill()
	pause(context.Background(), down)
	c.engine.start()
	if c.engine.severs {
		store, _ := c.engine.open()
		c.mu.Lock()
		c.direct = store
		c.mu.Unlock()
		c.start(0)
		c.start(1)
	}
}

// cutting is a listener whose connections can be cut.
type cutting struct {
	*bufconn.Listener

	mu    sync.Mutex
	conns []net.Conn
	down  bool
}

var errCut = errors.New("the gateway is cut off")

func (l *cutting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		_ = conn.Close() // whoever dialled hears of it
	}
	l.conns = append(l.conns, conn)
	return conn, nil
}

func (l *cutting) DialContext(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	down := l.down
	l.mu.Unlock()
	if down {
		return nil, fmt.Errorf("dial: %w", errCut)
	}
	return l.Listener.DialContext(ctx)
}

func (l *cutting) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, conn := range l.conns {
		_ = conn.Close() // that is what it is for
	}
}
