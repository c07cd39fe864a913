package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/informer"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver"
	"trireme.dev/services/apiserver/internal/storage/etcd/embedded"
)

// gatewayEnv makes the test's binary a gateway: the address to listen on, then those of etcd.
const gatewayEnv = "TRIREME_TEST_GATEWAY"

func TestMain(m *testing.M) {
	if listen, etcd, ok := strings.Cut(os.Getenv(gatewayEnv), ";"); ok {
		daemon.Main(func(ctx context.Context) error {
			cfg := apiserver.Config{EtcdEndpoints: []string{etcd}, Listen: listen, Insecure: true}
			s, err := apiserver.New(cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
	}
	os.Exit(m.Run())
}

// gateway is one that runs as a process of its own.
type gateway struct {
	address, etcd string
	cmd           *exec.Cmd
}

func (g *gateway) start(t *testing.T) {
	t.Helper()
	g.cmd = exec.Command(os.Args[0])
	g.cmd.Env = append(os.Environ(), gatewayEnv+"="+g.address+";"+g.etcd)
	g.cmd.Stderr = t.Output()
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, rpc.ClientConfig{Address: g.address, InsecureTCP: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := rpc.WaitServing(ctx, conn); err != nil {
		t.Fatalf("gateway at %s: %v", g.address, err)
	}
}

// stop ends the process as systemd and docker do, and returns how long it took.
func (g *gateway) stop(t *testing.T) time.Duration {
	t.Helper()
	begun := time.Now()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("gateway after SIGTERM: %v", err)
	}
	g.cmd = nil
	return time.Since(begun)
}

// freeAddress has a port below those that the system gives to connections: while a gateway is away, none of its clients may
// get its port.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
}

// startGateways runs an etcd and two gateways on it, and returns the gateways and the list of both.
func startGateways(t *testing.T) ([]*gateway, string) {
	t.Helper()
	db, err := embedded.Start(t.Context(), embedded.Config{
		Dir: filepath.Join(t.TempDir(), "etcd"), NoFsync: true, ClientListen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	var gateways []*gateway
	var addresses []string
	for range 2 {
		g := &gateway{address: freeAddress(t), etcd: db.ClientAddr().String()}
		g.start(t)
		t.Cleanup(func() {
			if g.cmd != nil {
				g.stop(t)
			}
		})
		gateways, addresses = append(gateways, g), append(addresses, g.address)
	}
	return gateways, strings.Join(addresses, ",")
}

// writer makes, changes and deletes config maps of its own until stop is closed. Each write is tried again while gateways
// come and go, so often at most.
type writer struct {
	id       int
	maps     *client.Resource[*corev1.ConfigMap]
	writes   int
	maxTries int
}

const triesAllowed = 40

func (w *writer) run(ctx context.Context, stop <-chan struct{}) error {
	random := rand.New(rand.NewPCG(uint64(w.id), 1))
	for n := 0; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		name := fmt.Sprintf("w%d-%d", w.id, random.IntN(8))
		data := map[string]string{"n": strconv.Itoa(n)}
		if err := w.insist(ctx, func() error { return w.write(ctx, random.IntN(4) == 0, name, data) }); err != nil {
			return fmt.Errorf("writer %d, write %d: %w", w.id, n, err)
		}
		w.writes++
		select { // gateways that start have their share of a small machine
		case <-stop:
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (w *writer) insist(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		w.maxTries = max(w.maxTries, try)
		err := do()
		if !apierr.IsUnavailable(err) || try == triesAllowed {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// write deletes an object or gives it data. What an unanswered try has done already is no failure of the next.
func (w *writer) write(ctx context.Context, remove bool, name string, data map[string]string) error {
	if remove {
		_, err := w.maps.Delete(ctx, "default", name, nil)
		if apierr.IsNotFound(err) {
			return nil
		}
		return err
	}
	object := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}
	_, err := w.maps.Update(ctx, object)
	if apierr.IsNotFound(err) {
		if _, err = w.maps.Create(ctx, object); apierr.IsAlreadyExists(err) {
			return nil
		}
	}
	return err
}

// replay follows all changes over the stops of gateways, and fails where one comes twice, is missing or is out of order.
type replay struct {
	maps     *client.Resource[*corev1.ConfigMap]
	state    map[string]*corev1.ConfigMap
	revision atomic.Int64 // everything up to here has been applied
	resumed  int
	events   int
}

func (r *replay) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !apierr.IsUnavailable(err) {
			return fmt.Errorf("a watch ended with %w", err)
		}
		r.resumed++
		select {
		case <-ctx.Done():
		case <-time.After(25 * time.Millisecond):
		}
	}
	return nil
}

func (r *replay) follow(ctx context.Context) error {
	options := client.WatchOptions{}
	if at := r.revision.Load(); at > 0 {
		options.ResourceVersion = strconv.FormatInt(at, 10)
	}
	w, err := r.maps.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer w.Close()
	var partial []client.Event[*corev1.ConfigMap]
	initial := options.ResourceVersion == ""
	for {
		response, err := w.Recv()
		if err != nil {
			return err // what is partial comes again
		}
		partial = append(partial, response.Events...)
		initial = initial && !response.InitialEventsEnd
		if response.More || initial {
			continue
		}
		for _, e := range partial {
			if err := r.apply(e); err != nil {
				return err
			}
		}
		partial = nil
		r.revision.Store(response.Revision)
	}
}

func (r *replay) apply(e client.Event[*corev1.ConfigMap]) error {
	key := e.Object.GetMetadata().GetNamespace() + "/" + e.Object.GetMetadata().GetName()
	old, there := r.state[key]
	version := func(c *corev1.ConfigMap) int64 {
		n, _ := strconv.ParseInt(c.GetMetadata().GetResourceVersion(), 10, 64)
		return n
	}
	r.events++
	wrong := func(what string) error {
		return fmt.Errorf("event %s of %s at %d: %s", e.Type, key, version(e.Object), what)
	}
	if at := r.revision.Load(); at > 0 && version(e.Object) <= at {
		return wrong(fmt.Sprintf("all up to %d has come before", at))
	}
	switch e.Type {
	case metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED:
		if there {
			return wrong("it is there already: its deletion was lost, or it came twice")
		}
	case metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED:
		if !there {
			return wrong("it is not there: its creation was lost")
		}
		if version(e.Object) <= version(old) {
			return wrong(fmt.Sprintf("it stands at %d already", version(old)))
		}
	case metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED:
		if !there {
			return wrong("it is not there: it was deleted twice, or its creation was lost")
		}
		delete(r.state, key)
		return nil
	}
	r.state[key] = e.Object
	return nil
}

func same(t *testing.T, who string, got map[string]*corev1.ConfigMap, want []*corev1.ConfigMap) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d objects, the list %d", who, len(got), len(want))
	}
	for _, w := range want {
		key := w.GetMetadata().GetNamespace() + "/" + w.GetMetadata().GetName()
		if !proto.Equal(got[key], w) {
			t.Errorf("%s: %s is\n%v\nwant\n%v", who, key, got[key], w)
		}
	}
}

// Gateways are restarted one after the other, again and again, under writers, watchers and informers: no event is lost or
// doubled, and every write succeeds within a bounded number of tries.
func TestRollingRestartLosesNoEvent(t *testing.T) {
	gateways, list := startGateways(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute) // seconds, unless the machine has other things to do
	defer cancel()
	connect := func() *grpc.ClientConn { return dial(t, rpc.ClientConfig{Address: list, InsecureTCP: true}) }

	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	ended := make(chan error, 20)
	var background sync.WaitGroup
	var replays []*replay
	var informers []*informer.Informer[*corev1.ConfigMap]
	for range 4 {
		r := &replay{maps: client.For[*corev1.ConfigMap](connect()), state: map[string]*corev1.ConfigMap{}}
		replays = append(replays, r)
		background.Go(func() { ended <- r.run(watching) })
		factory := informer.NewFactory(connect(), slog.New(slog.DiscardHandler))
		i := informer.Of[*corev1.ConfigMap](factory, informer.Config{})
		informers = append(informers, i)
		background.Go(func() { ended <- factory.Run(watching) })
	}

	stop := make(chan struct{})
	written := make(chan error, 4)
	var writers []*writer
	for id := range 4 {
		w := &writer{id: id, maps: client.For[*corev1.ConfigMap](connect())}
		writers = append(writers, w)
		go func() { written <- w.run(ctx, stop) }()
	}
	var slowest time.Duration
	for range 2 {
		for _, g := range gateways {
			slowest = max(slowest, g.stop(t))
			g.start(t)
		}
	}
	close(stop)
	writes, tries := 0, 0
	for range writers {
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range writers {
		writes, tries = writes+w.writes, max(tries, w.maxTries)
	}

	final, err := client.For[*corev1.ConfigMap](connect()).List(ctx, client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// One more change, so that all have something to wait for even where the last one was a deletion.
	last, err := client.For[*corev1.ConfigMap](connect()).Create(ctx, &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "last"}})
	if err != nil {
		t.Fatal(err)
	}
	final.Items = append(final.Items, last)
	revision, err := strconv.ParseInt(last.GetMetadata().GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range informers {
		if err := i.WaitForRevision(ctx, revision); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range replays {
		for r.revision.Load() < revision {
			select {
			case err := <-ended:
				t.Fatalf("a watcher gave up: %v", err)
			case <-ctx.Done():
				t.Fatalf("a watcher is at %d, the store at %d", r.revision.Load(), revision)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	stopWatching()
	background.Wait()
	close(ended)
	for err := range ended {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	resumed := 0
	for n, r := range replays {
		same(t, fmt.Sprintf("watcher %d", n), r.state, final.Items)
		resumed += r.resumed
	}
	for n, i := range informers {
		state := map[string]*corev1.ConfigMap{}
		for _, c := range i.Lister().List("", nil) {
			state[c.GetMetadata().GetNamespace()+"/"+c.GetMetadata().GetName()] = c
		}
		same(t, fmt.Sprintf("informer %d", n), state, final.Items)
	}
	if resumed == 0 || writes < 100 {
		t.Errorf("%d resumed watches, %d writes: the restarts met nothing", resumed, writes)
	}
	t.Logf("%d writes, at most %d tries each; %d events at each watcher, %d times resumed; slowest stop %s",
		writes, tries, replays[0].events, resumed, slowest)
}

// Each gateway keeps a Component of itself as long as it runs, and takes it away when it is stopped in good order.
func TestGatewaysTellOfThemselves(t *testing.T) {
	gateways, list := startGateways(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	components := client.For[*componentv1.Component](dial(t, rpc.ClientConfig{Address: list, InsecureTCP: true}))
	// until lists until the components are as many as wanted and each has told how long its watch takes.
	until := func(want int) []*componentv1.Component {
		for {
			found, err := components.List(ctx, client.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, c := range found.Items {
				if lag, err := time.ParseDuration(c.GetStatus().GetLag()); err == nil && lag > 0 && c.GetStatus().GetHeartbeatAt() != nil {
					n++
				}
			}
			if n == want && len(found.Items) == want {
				return found.Items
			}
			select {
			case <-ctx.Done():
				t.Fatalf("waiting for %d components: %v", want, found.Items)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	for _, c := range until(2) {
		s := c.GetStatus()
		if c.GetSpec().GetComponent() != "apiserver" || s.GetVersion() == "" || s.GetPid() == 0 || !strings.Contains(list, s.GetAddress()) {
			t.Errorf("component %v", c)
		}
	}
	gateways[0].stop(t)
	if left := until(1); left[0].GetStatus().GetAddress() != gateways[1].address {
		t.Errorf("left is %v, want the one at %s", left, gateways[1].address)
	}
}
