//go:build linux && realruntime

package routes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"trireme.dev/client"
	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/kit/daemon"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/apitest"
	"trireme.dev/services/nodeagent/internal/network"
)

// TestMain runs the tests in a network of their own, so that the machine's stays as it is.
func TestMain(m *testing.M) {
	const inside = "TRIREME_TEST_OWN_NETWORK"
	if os.Getenv(inside) != "" {
		goleak.VerifyTestMain(m)
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests of the network need root:", err)
		os.Exit(1)
	}
}

// space is a network namespace: a host, or a pod.
type space struct {
	t      *testing.T
	path   string
	handle netns.NsHandle
}

func newSpace(t *testing.T) *space {
	t.Helper()
	s := &space{t: t, path: filepath.Join(t.TempDir(), "net")}
	if err := os.WriteFile(s.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		goruntime.LockOSThread() // never unlocked: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), s.path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(s.path, unix.MNT_DETACH) })
	var err error
	if s.handle, err = netns.GetFromPath(s.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.handle.Close() })
	s.must(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return s
}

// in runs a function in the namespace.
func (s *space) in(do func() error) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread()
		if err := unix.Setns(int(s.handle), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

func (s *space) must(do func() error) {
	s.t.Helper()
	if err := s.in(do); err != nil {
		s.t.Fatal(err)
	}
}

// join links two hosts by a wire, as a switch would.
func join(t *testing.T, a *space, aIP string, b *space, bIP string) {
	t.Helper()
	a.must(func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire"}, PeerName: "wire", PeerNamespace: netlink.NsFd(int(b.handle))})
	})
	for s, ip := range map[*space]string{a: aIP, b: bIP} {
		s.must(func() error {
			link, err := netlink.LinkByName("wire")
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(ip)
			if err != nil {
				return err
			}
			return errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link))
		})
	}
}

// host is a node: its network, and the keeper of its routes.
type host struct {
	*space
	name   string
	bridge *network.Bridge
	stop   func()
}

func newHost(t *testing.T, api *apitest.Server, s *space, name, cidr string) *host {
	t.Helper()
	h := &host{space: s, name: name}
	var err error
	if h.bridge, err = network.New(network.Config{StateDir: t.TempDir()}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	s.must(func() error { return h.bridge.SetCIDR(t.Context(), netip.MustParsePrefix(cidr)) })
	factory := informer.NewFactory(api.Conn(), slog.New(slog.DiscardHandler))
	events := event.NewRecorder(api.Conn(), "nodeagent")
	k := New(Config{Node: name, Namespace: &s.handle}, Deps{
		Factory: factory, Events: events, Logger: slog.New(slog.DiscardHandler),
		SetPeers: func(ctx context.Context, ranges []netip.Prefix) error {
			return s.in(func() error { return h.bridge.SetPeers(ctx, ranges) })
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- daemon.Run(ctx, daemon.Task{Name: "watch", Run: factory.Run}, daemon.Task{Name: "events", Run: events.Run}, daemon.Task{Name: "routes", Run: k.Run})
	}()
	h.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(h.stop)
	return h
}

// pod attaches a pod, and serves at its port 80 the address that a caller is seen as.
func (h *host) pod(uid string) (*space, string) {
	h.t.Helper()
	p := newSpace(h.t)
	var ips []string
	h.must(func() (err error) { ips, err = h.bridge.Attach(h.t.Context(), uid, p.path, nil); return err })
	var listener net.Listener
	p.must(func() (err error) { listener, err = net.Listen("tcp4", ":80"); return err })
	h.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			from, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			_, _ = io.WriteString(conn, from+"\n")
			_ = conn.Close()
		}
	}()
	return p, ips[0]
}

// ask connects from a namespace and returns whom the other side sees.
func (s *space) ask(address string) (seen string, err error) {
	err = s.in(func() error {
		conn, err := net.DialTimeout("tcp4", address, time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		line, err := bufio.NewReader(conn).ReadString('\n')
		seen = strings.TrimSpace(line)
		return err
	})
	return seen, err
}

// routes of ours on the host.
func (h *host) routes() string {
	h.t.Helper()
	handle, err := netlink.NewHandleAt(h.handle, unix.NETLINK_ROUTE)
	if err != nil {
		h.t.Fatal(err)
	}
	defer handle.Close()
	found, err := list(handle)
	if err != nil {
		h.t.Fatal(err)
	}
	var out []string
	for _, r := range found {
		out = append(out, r.String())
	}
	return strings.Join(out, ", ")
}

// eventually polls the kernel, which has no event for "nothing more will change".
func (h *host) eventually(want string) {
	h.t.Helper()
	got := ""
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		if got = h.routes(); got == want {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	h.t.Fatalf("routes of %s are %q, want %q", h.name, got, want)
}

func TestPodsOfTwoNodesReachEachOther(t *testing.T) {
	api := apitest.New(t)
	nodes := client.For[*corev1.Node](api.Conn())
	put := func(n *corev1.Node) {
		t.Helper()
		if _, err := nodes.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	one, two := newSpace(t), newSpace(t)
	join(t, one, "10.9.0.1/24", two, "10.9.0.2/24")
	foreign := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 200, 0, 0), Mask: net.CIDRMask(16, 32)}, Gw: net.IPv4(10, 9, 0, 77)}
	taken := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 64, 8, 0), Mask: net.CIDRMask(24, 32)}, Gw: net.IPv4(10, 9, 0, 78)}
	byDefault := &netlink.Route{Gw: net.IPv4(10, 9, 0, 254)}
	for _, r := range []*netlink.Route{foreign, taken, byDefault} {
		one.must(func() error { return netlink.RouteAdd(r) })
	}

	a := newHost(t, api, one, "a", "10.64.0.0/24")
	b := newHost(t, api, two, "b", "10.64.1.0/24")
	put(node("a", "10.64.0.0/24", "10.9.0.1"))
	put(node("b", "10.64.1.0/24", "10.9.0.2"))
	put(node("simulated", "10.64.5.0/24", "127.0.0.1"))
	put(node("far", "10.64.7.0/24", "192.0.2.7"))
	put(node("taken", "10.64.8.0/24", "10.9.0.8"))
	a.eventually("10.64.1.0/24 via 10.9.0.2")
	b.eventually("10.64.0.0/24 via 10.9.0.1, 10.64.8.0/24 via 10.9.0.8")

	// Pods see each other's own addresses; what leaves the cluster is masqueraded as before.
	podA, ipA := a.pod("pod-a")
	podB, ipB := b.pod("pod-b")
	for _, tt := range []struct {
		from  *space
		to    string
		seen  string
		where string
	}{{podA, ipB, ipA, "a to b"}, {podB, ipA, ipB, "b to a"}, {one, ipB, "10.9.0.1", "host a to b"}} {
		if seen, err := tt.from.ask(tt.to + ":80"); err != nil || seen != tt.seen {
			t.Errorf("%s is seen as %q, %v, want %s", tt.where, seen, err, tt.seen)
		}
	}
	var outside net.Listener
	two.must(func() (err error) { outside, err = net.Listen("tcp4", "10.9.0.2:8080"); return err })
	defer outside.Close()
	go func() {
		if conn, err := outside.Accept(); err == nil {
			from, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			_, _ = io.WriteString(conn, from+"\n")
			_ = conn.Close()
		}
	}()
	if seen, err := podA.ask("10.9.0.2:8080"); err != nil || seen != "10.9.0.1" {
		t.Errorf("a pod is seen by another host as %q, %v, want its node's address", seen, err)
	}

	// Someone removes a route: it comes back. A link goes down and up: so do its routes.
	lost := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 64, 1, 0), Mask: net.CIDRMask(24, 32)}}
	one.must(func() error { return netlink.RouteDel(lost) })
	a.eventually("10.64.1.0/24 via 10.9.0.2")
	wire := func(set func(netlink.Link) error) func() error {
		return func() error {
			link, err := netlink.LinkByName("wire")
			if err != nil {
				return err
			}
			return set(link)
		}
	}
	two.must(wire(netlink.LinkSetDown))
	b.eventually("")
	two.must(wire(netlink.LinkSetUp))
	b.eventually("10.64.0.0/24 via 10.9.0.1, 10.64.8.0/24 via 10.9.0.8")

	// What cannot be reached is told as an event of the node.
	reasons := map[string]string{"far": "behind router 10.9.0.254", "taken": "a route to 10.64.8.0/24 that is not ours"}
	told := func() map[string]string {
		list, err := client.For[*corev1.Event](api.Conn()).List(t.Context(), client.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, e := range list.Items {
			if strings.Contains(e.GetMessage(), "from pods of node a:") {
				found[e.GetInvolvedObject().GetName()] = e.GetReason() + " " + e.GetMessage()
			}
		}
		return found
	}
	for deadline := time.Now().Add(5 * time.Second); len(told()) < len(reasons) && time.Now().Before(deadline); {
		<-time.After(10 * time.Millisecond)
	}
	for name, want := range reasons {
		if got := told()[name]; !strings.HasPrefix(got, "NodeNotRouted ") || !strings.Contains(got, want) {
			t.Errorf("event of node %s is %q, want %q in it", name, got, want)
		}
	}

	// A node that leaves takes its route along; others' routes stay.
	if _, err := nodes.Delete(t.Context(), "", "b", nil); err != nil {
		t.Fatal(err)
	}
	a.eventually("")
	a.stop()
	one.must(Remove)
	b.stop()
	if got := b.routes(); got == "" {
		t.Error("routes are gone with the agent: pods would lose their connections")
	}
	two.must(Remove)
	if got := b.routes(); got != "" {
		t.Errorf("Remove leaves %s", got)
	}
	one.must(func() error {
		all, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		found := map[string]bool{}
		for _, r := range all {
			found[r.Gw.String()] = true
		}
		for _, gw := range []string{"10.9.0.77", "10.9.0.78", "10.9.0.254"} {
			if !found[gw] {
				t.Errorf("the route through %s, which is not ours, is gone", gw)
			}
		}
		return err
	})
}
