//go:build linux && realruntime

package network

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

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// TestMain runs the tests in a network of their own, so that the machine's stays as it is.
func TestMain(m *testing.M) {
	const inside = "TRIREME_TEST_OWN_NETWORK"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "tests of the network need root:", err)
			os.Exit(1)
		}
		return
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var cidr = netip.MustParsePrefix("10.213.9.0/24")

func newBridge(t *testing.T, dir string) *Bridge {
	t.Helper()
	b, err := New(Config{StateDir: dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// namespace makes a network namespace that is pinned at the returned path.
func namespace(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := inNew(func() error {
		return unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "", unix.MS_BIND, "")
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}

func inNew(do func() error) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread() // never unlocked: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// in runs a function in a namespace.
func in(t *testing.T, path string, do func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		goruntime.LockOSThread()
		done <- func() error {
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return do()
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// serve answers each TCP connection with the address it came from.
func serve(t *testing.T, ns string, port int) {
	t.Helper()
	var listener net.Listener
	in(t, ns, func() (err error) {
		listener, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		return err
	})
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			_, _ = io.WriteString(conn, host+"\n")
			_ = conn.Close()
		}
	}()
}

// ask connects and returns the answer.
func ask(address string) (string, error) {
	conn, err := net.DialTimeout("tcp4", address, 3*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func TestNetwork(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	b := newBridge(t, dir)
	one, two := namespace(t), namespace(t)

	if _, err := b.Attach(ctx, "one", one, nil); !errors.Is(err, runtime.ErrNetworkNotReady) {
		t.Fatalf("attach before there is a range: %v", err)
	}
	for range 2 {
		if err := b.SetCIDR(ctx, cidr); err != nil {
			t.Fatal(err)
		}
	}
	ports := []runtime.HostPort{{HostPort: 8088, ContainerPort: 80, Protocol: "TCP"}}
	ips, err := b.Attach(ctx, "one", one, ports)
	if err != nil {
		t.Fatal(err)
	}
	others, err := b.Attach(ctx, "two", two, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ips[0] != "10.213.9.2" || others[0] != "10.213.9.3" || !b.Attached("one") {
		t.Fatalf("addresses %s and %s", ips, others)
	}
	if _, err := b.Attach(ctx, "three", namespace(t), ports); err == nil || !strings.Contains(err.Error(), "8088") {
		t.Errorf("a host port is given twice: %v", err)
	}

	serve(t, one, 80)
	// The node reaches the pod by its address and by its host port, loopback included; so does another pod, and the
	// pod itself.
	const gateway = "10.213.9.1"
	for _, tt := range []struct{ from, to, seenAs string }{
		{"node", ips[0] + ":80", gateway},
		{"node", "127.0.0.1:8088", gateway},
		{"node", gateway + ":8088", gateway},
		{"two", ips[0] + ":80", others[0]},
		{"two", gateway + ":8088", gateway},
		{"one", "127.0.0.1:80", "127.0.0.1"},
		{"one", gateway + ":8088", gateway},
	} {
		var got string
		do := func() (err error) { got, err = ask(tt.to); return err }
		switch tt.from {
		case "node":
			if err := do(); err != nil {
				t.Errorf("%s to %s: %v", tt.from, tt.to, err)
				continue
			}
		case "one":
			in(t, one, do)
		case "two":
			in(t, two, do)
		}
		if got != tt.seenAs {
			t.Errorf("%s to %s is seen as %s, want %s", tt.from, tt.to, got, tt.seenAs)
		}
	}

	// Another agent finds the addresses taken and the host port working after it has set the range again.
	b = newBridge(t, dir)
	if err := b.SetCIDR(ctx, cidr); err != nil {
		t.Fatal(err)
	}
	if _, err := ask("127.0.0.1:8088"); err != nil {
		t.Errorf("host port after a restart: %v", err)
	}
	if again, err := b.Attach(ctx, "four", namespace(t), nil); err != nil || again[0] == ips[0] || again[0] == others[0] {
		t.Errorf("address after a restart %v, %v: given twice", again, err)
	}
	if err := b.GC(ctx, map[string]bool{"one": true, "two": true}); err != nil {
		t.Fatal(err)
	}
	if b.Attached("four") || !b.Attached("one") {
		t.Error("the wrong pods are removed as leftovers")
	}

	for range 2 {
		if err := b.Detach(ctx, "one"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ask("127.0.0.1:8088"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("host port after detach: %v, want refused", err)
	}
	for range 2 {
		if err := b.Teardown(ctx); err != nil {
			t.Fatal(err)
		}
	}
	requireNothing(t, dir)
}

// Packets that leave the pod range carry the node's address.
func TestMasquerade(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	b := newBridge(t, dir)
	if err := b.SetCIDR(ctx, cidr); err != nil {
		t.Fatal(err)
	}
	pod, outside := namespace(t), namespace(t)
	if _, err := b.Attach(ctx, "pod", pod, nil); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(outside)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	wire := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "wire0"}, PeerName: "wire1", PeerNamespace: netlink.NsFd(int(file.Fd())),
	}
	if err := netlink.LinkAdd(wire); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(wire) })
	up := func(name, address string) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link))
	}
	if err := up("wire0", "192.0.2.1/24"); err != nil {
		t.Fatal(err)
	}
	in(t, outside, func() error { return up("wire1", "192.0.2.2/24") })
	serve(t, outside, 80)
	in(t, pod, func() error {
		seen, err := ask("192.0.2.2:80")
		if seen != "192.0.2.1" {
			t.Errorf("the pod is seen outside as %q, want the node's 192.0.2.1", seen)
		}
		return err
	})
	if err := b.Teardown(ctx); err != nil {
		t.Fatal(err)
	}
	requireNothing(t, dir)
}

func requireNothing(t *testing.T, dir string) {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == "trireme0" || strings.HasPrefix(name, linkPrefix) {
			t.Errorf("interface %s is left", name)
		}
	}
	tables, err := (&nftables.Conn{}).ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if table.Name == "trireme" {
			t.Error("the nftables table is left")
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Errorf("record %s is left", file.Name())
	}
}
