// Package gatewaytest is a gateway in memory for the tests of this module: real gRPC over an in-memory listener, every
// kind that is compiled in, etcd's revisions, and the ways in which a gateway disappoints its clients: streams cut in
// the middle of a revision, compaction, restarts, silence.
//
// It knows no selectors, no defaults and no validation; the real gateway is tested in its own module.
package gatewaytest

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Gateway serves until the test ends. It is safe for concurrent use.
type Gateway struct {
	kinds *kind.Registry

	mu       sync.Mutex
	revision int64
	// compacted is the revision before which there is no history.
	compacted int64
	objects   map[objectKey]client.Object
	log       []change
	moved     chan struct{}

	listener *bufconn.Listener
	server   *grpc.Server
	// cut ends all watches when closed.
	cut chan struct{}
	// cutInside makes watches end after this many events of one revision; 0 never.
	cutInside int
	// warning goes with every answer.
	warning string
	calls   map[string]int
	refuse  error
}

type objectKey struct{ message, namespace, name string }

type change struct {
	key      objectKey
	revision int64
	event    metav1.WatchEventType
	object   client.Object
}

// eventsPerResponse is small so that revisions of several events are split.
const eventsPerResponse = 2

// New starts a gateway.
func New(t testing.TB) *Gateway {
	g := &Gateway{
		kinds: kind.Builtin(), objects: map[objectKey]client.Object{}, moved: make(chan struct{}),
		cut: make(chan struct{}), calls: map[string]int{}, revision: 100,
	}
	g.Up()
	t.Cleanup(g.Down)
	return g
}

// Conn returns a connection that is closed when the test ends. It follows the gateway through restarts.
func (g *Gateway) Conn(t testing.TB) *grpc.ClientConn {
	fast := backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond}
	conn, err := grpc.NewClient("passthrough:///gateway",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: fast, MinConnectTimeout: time.Second}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			g.mu.Lock()
			listener := g.listener
			g.mu.Unlock()
			if listener == nil {
				return nil, net.ErrClosed
			}
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Up starts serving again after Down, with all state kept.
func (g *Gateway) Up() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listener = bufconn.Listen(1 << 20)
	g.server = grpc.NewServer(grpc.UnknownServiceHandler(g.serve), grpc.WaitForHandlers(true))
	go func(s *grpc.Server, l net.Listener) { _ = s.Serve(l) }(g.server, g.listener)
}

// Down stops serving: connections break and new ones are refused.
func (g *Gateway) Down() {
	g.mu.Lock()
	server := g.server
	g.server, g.listener = nil, nil
	g.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Serve adds a kind that came at run time.
func (g *Gateway) Serve(t testing.TB, k *kind.Kind) {
	if err := g.kinds.Add(k); err != nil {
		t.Fatal(err)
	}
}

// Put creates or updates objects in one transaction, and returns its revision.
func (g *Gateway) Put(objects ...client.Object) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.revision++
	for _, o := range objects {
		g.put(o)
	}
	g.wake()
	return g.revision
}

// put stores a copy of o at the present revision. It holds g.mu.
func (g *Gateway) put(o client.Object) client.Object {
	o, _ = proto.Clone(o).(client.Object)
	k := keyOf(o)
	event := metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED
	meta := o.GetMetadata()
	if old, ok := g.objects[k]; ok {
		event = metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED
		meta.Uid = old.GetMetadata().GetUid()
	} else if meta.GetUid() == "" {
		meta.Uid = "uid-" + strconv.FormatInt(g.revision, 10) + "-" + meta.GetName()
	}
	meta.ResourceVersion = strconv.FormatInt(g.revision, 10)
	g.objects[k] = o
	g.log = append(g.log, change{k, g.revision, event, o})
	return o
}

// Remove deletes objects in one transaction, and returns its revision.
func (g *Gateway) Remove(objects ...client.Object) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.revision++
	for _, o := range objects {
		g.remove(keyOf(o))
	}
	g.wake()
	return g.revision
}

func (g *Gateway) remove(k objectKey) (client.Object, bool) {
	old, ok := g.objects[k]
	if !ok {
		return nil, false
	}
	delete(g.objects, k)
	last, _ := proto.Clone(old).(client.Object)
	last.GetMetadata().ResourceVersion = strconv.FormatInt(g.revision, 10)
	g.log = append(g.log, change{k, g.revision, metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED, last})
	return last, true
}

func (g *Gateway) wake() {
	close(g.moved)
	g.moved = make(chan struct{})
}

// Compact forgets all history.
func (g *Gateway) Compact() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.compacted, g.log = g.revision, nil
}

// Bookmark moves the revision on without a change.
func (g *Gateway) Bookmark() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.revision++
	g.wake()
	return g.revision
}

// CutStreams breaks all watches.
func (g *Gateway) CutStreams() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.cut)
	g.cut = make(chan struct{})
}

// CutInside makes each watch break once it has sent n events of a revision that has more; 0 ends that.
func (g *Gateway) CutInside(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cutInside = n
}

// Warn sends a warning with every answer.
func (g *Gateway) Warn(warning string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.warning = warning
}

// Refuse makes every call fail with err; nil ends that.
func (g *Gateway) Refuse(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = err
}

// Calls is how often a verb was called: Watch.
func (g *Gateway) Calls(verb string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[verb]
}

// Objects returns copies of all objects of the kind of zero.
func (g *Gateway) Objects(zero client.Object) []client.Object {
	g.mu.Lock()
	defer g.mu.Unlock()
	var objects []client.Object
	for k, o := range g.objects {
		if k.message == string(zero.ProtoReflect().Descriptor().FullName()) {
			c, _ := proto.Clone(o).(client.Object)
			objects = append(objects, c)
		}
	}
	return objects
}

func keyOf(o client.Object) objectKey {
	meta := o.GetMetadata()
	return objectKey{string(o.ProtoReflect().Descriptor().FullName()), meta.GetNamespace(), meta.GetName()}
}

func (g *Gateway) serve(_ any, stream grpc.ServerStream) error {
	path, _ := grpc.MethodFromServerStream(stream)
	service, verb, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	for _, k := range g.kinds.All() {
		if string(k.ServiceName) == service {
			return apierr.ToStatus(g.dispatch(k, verb, stream))
		}
	}
	return status.Errorf(codes.Unimplemented, "no service %s", service)
}

func (g *Gateway) dispatch(k *kind.Kind, verb string, stream grpc.ServerStream) error {
	g.mu.Lock()
	g.calls[verb]++
	refuse, warning := g.refuse, g.warning
	g.mu.Unlock()
	if warning != "" {
		stream.SetTrailer(metadata.Pairs(client.WarningKey, warning))
	}
	if refuse != nil {
		return refuse
	}
	switch verb {
	case "Get", "Delete", "Create", "Update", "UpdateStatus", "Patch", "DeleteCollection":
		return g.unary(k, verb, stream)
	case "List":
		return g.list(k, stream)
	case "Watch":
		return g.watch(k, stream)
	}
	return apierr.Unimplemented(verb)
}
