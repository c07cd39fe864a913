//go:build linux

package network

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// Config of a node's network.
type Config struct {
	// BridgeName is the bridge's interface name: trireme0.
	BridgeName string
	// TableName is the nftables table's: trireme.
	TableName string
	// StateDir keeps one file per pod that has an address. Required.
	StateDir string
	// MTU of the pods' interfaces; zero leaves the kernel's choice.
	MTU int
}

// Bridge is the node's pod network. Its methods are safe for concurrent use.
type Bridge struct {
	cfg    Config
	logger *slog.Logger

	mu   sync.Mutex
	cidr netip.Prefix
	last netip.Addr
	pods map[string]attachment
	// peers are the ranges of other nodes' pods, sorted, without overlaps.
	peers []netip.Prefix
}

// attachment is the record of one pod, kept in a file.
type attachment struct {
	Address   netip.Addr
	HostPorts []runtime.HostPort
}

// linkPrefix begins the names of all host ends of pods' interfaces.
const linkPrefix = "tr-"

// New makes a network from the records in its state folder. Nothing on the node changes yet.
func New(cfg Config, logger *slog.Logger) (*Bridge, error) {
	if cfg.BridgeName == "" {
		cfg.BridgeName = "trireme0"
	}
	if cfg.TableName == "" {
		cfg.TableName = "trireme"
	}
	if cfg.StateDir == "" {
		return nil, errors.New("network: no state folder")
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("network state: %w", err)
	}
	b := &Bridge{cfg: cfg, logger: logger, pods: map[string]attachment{}}
	files, err := filepath.Glob(filepath.Join(cfg.StateDir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("network state: %w", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("network state: %w", err)
		}
		var a attachment
		if err := json.Unmarshal(data, &a); err != nil {
			return nil, fmt.Errorf("network state %s: %w", file, err)
		}
		b.pods[strings.TrimSuffix(filepath.Base(file), ".json")] = a
	}
	return b, nil
}

// SetCIDR makes the bridge for a range of pod addresses, and the rules. It may be repeated; a bridge that has been
// changed from outside is put right again.
func (b *Bridge) SetCIDR(_ context.Context, cidr netip.Prefix) error {
	cidr = cidr.Masked()
	if !cidr.Addr().Is4() || cidr.Bits() > 29 {
		return fmt.Errorf("pod CIDR %s: want an IPv4 range of /29 or larger", cidr)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ensureBridge(cidr); err != nil {
		return fmt.Errorf("bridge %s: %w", b.cfg.BridgeName, err)
	}
	for file, value := range map[string]string{
		"ip_forward": "1",
		// Host ports are reached through 127.0.0.1 too: those packets leave by the bridge with a loopback address.
		"conf/" + b.cfg.BridgeName + "/route_localnet": "1",
	} {
		if err := setSysctl(filepath.Join("/proc/sys/net/ipv4", file), value); err != nil {
			return err
		}
	}
	if err := b.ensureRules(cidr); err != nil {
		return fmt.Errorf("nftables table %s: %w", b.cfg.TableName, err)
	}
	b.cidr = cidr
	return nil
}

// SetPeers says which ranges belong to pods of other nodes: what goes there keeps its source address, so that pods see each
// other's. It may be repeated, and called before SetCIDR. Ranges that overlap others of the list are an error.
func (b *Bridge) SetPeers(_ context.Context, ranges []netip.Prefix) error {
	sorted := make([]netip.Prefix, 0, len(ranges))
	for _, p := range ranges {
		if !p.Addr().Is4() {
			return fmt.Errorf("pod range %s: want an IPv4 range", p)
		}
		sorted = append(sorted, p.Masked())
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Overlaps(sorted[i-1]) {
			return fmt.Errorf("pod ranges %s and %s overlap", sorted[i-1], sorted[i])
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Equal(sorted, b.peers) {
		return nil
	}
	before := b.peers
	b.peers = sorted
	if !b.cidr.IsValid() {
		return nil // SetCIDR makes the rules with them
	}
	if err := b.replacePeers(); err != nil {
		b.peers = before
		return fmt.Errorf("nftables set %s: %w", peerSet, err)
	}
	return nil
}

func setSysctl(file, value string) error {
	if now, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(now)) == value {
		return nil
	}
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl: %w", err)
	}
	return nil
}

// Ready says whether pods can get addresses.
func (b *Bridge) Ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cidr.IsValid()
}

func (b *Bridge) ensureBridge(cidr netip.Prefix) error {
	gateway := netip.PrefixFrom(Gateway(cidr), cidr.Bits())
	link, err := netlink.LinkByName(b.cfg.BridgeName)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = b.cfg.BridgeName, b.cfg.MTU
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return fmt.Errorf("add: %w", err)
		}
		link, err = netlink.LinkByName(b.cfg.BridgeName)
	}
	if err != nil {
		return err
	}
	if link.Type() != "bridge" {
		return fmt.Errorf("an interface of type %s has this name", link.Type())
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	want := ipNet(gateway)
	found := false
	for _, a := range addrs {
		if a.IPNet.String() == want.String() {
			found = true
			continue
		}
		// An earlier range's gateway would answer for addresses that are no longer ours.
		if err := netlink.AddrDel(link, &a); err != nil {
			return fmt.Errorf("remove address %s: %w", a.IPNet, err)
		}
	}
	if !found {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: want}); err != nil {
			return fmt.Errorf("add address %s: %w", want, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// linkName is the host end of a pod's interface.
func linkName(uid string) string {
	return fmt.Sprintf("%s%.12x", linkPrefix, sha256.Sum256([]byte(uid)))[:15]
}

// Attach gives the network namespace at a path an interface, an address, a default route and the host ports. A pod
// that is attached already keeps its address. On an error nothing is left.
func (b *Bridge) Attach(ctx context.Context, uid, nsPath string, ports []runtime.HostPort) ([]string, error) {
	a, cidr, err := b.reserve(uid, ports)
	if err != nil {
		return nil, err
	}
	err = b.connect(uid, nsPath, a, cidr)
	if err == nil && len(ports) > 0 {
		b.mu.Lock()
		err = b.addHostPorts(uid, a)
		b.mu.Unlock()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach pod %s: %w", uid, err), b.Detach(ctx, uid))
	}
	return []string{a.Address.String()}, nil
}

// reserve finds a pod's address and writes it down before anything is made.
func (b *Bridge) reserve(uid string, ports []runtime.HostPort) (attachment, netip.Prefix, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.cidr.IsValid() {
		return attachment{}, b.cidr, runtime.ErrNetworkNotReady
	}
	used := map[netip.Addr]bool{}
	for other, a := range b.pods {
		if other == uid {
			continue
		}
		used[a.Address] = true
		for _, p := range ports {
			for _, q := range a.HostPorts {
				if conflict(p, q) {
					return attachment{}, b.cidr, fmt.Errorf("host port %d/%s belongs to pod %s", p.HostPort, p.Protocol, other)
				}
			}
		}
	}
	a, ok := b.pods[uid]
	if !ok || !b.cidr.Contains(a.Address) {
		addr, ok := NextAddress(b.cidr, b.last, func(a netip.Addr) bool { return used[a] })
		if !ok {
			return attachment{}, b.cidr, fmt.Errorf("no free address in %s", b.cidr)
		}
		a.Address, b.last = addr, addr
	}
	a.HostPorts = ports
	if err := b.save(uid, a); err != nil {
		return attachment{}, b.cidr, err
	}
	b.pods[uid] = a
	return a, b.cidr, nil
}

func conflict(p, q runtime.HostPort) bool {
	any := func(ip string) bool { return ip == "" || ip == "0.0.0.0" }
	return p.HostPort == q.HostPort && p.Protocol == q.Protocol &&
		(any(p.HostIP) || any(q.HostIP) || p.HostIP == q.HostIP)
}

func (b *Bridge) file(uid string) string { return filepath.Join(b.cfg.StateDir, uid+".json") }

func (b *Bridge) save(uid string, a attachment) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("record address of pod %s: %w", uid, err)
	}
	if err := os.WriteFile(b.file(uid)+".new", data, 0o600); err != nil {
		return fmt.Errorf("record address of pod %s: %w", uid, err)
	}
	if err := os.Rename(b.file(uid)+".new", b.file(uid)); err != nil {
		return fmt.Errorf("record address of pod %s: %w", uid, err)
	}
	return nil
}

// connect makes the veth pair with one end on the bridge and the other one, eth0, in the pod's namespace.
func (b *Bridge) connect(uid, nsPath string, a attachment, cidr netip.Prefix) error {
	bridge, err := netlink.LinkByName(b.cfg.BridgeName)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", b.cfg.BridgeName, err)
	}
	ns, err := netns.GetFromPath(nsPath)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", nsPath, err)
	}
	defer func() { _ = ns.Close() }()

	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex = linkName(uid), b.cfg.MTU, bridge.Attrs().Index
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(ns))}
	err = netlink.LinkAdd(veth)
	if errors.Is(err, os.ErrExist) {
		// A killed agent left it half made.
		if err := b.disconnect(uid); err != nil {
			return err
		}
		err = netlink.LinkAdd(veth)
	}
	if err != nil {
		return fmt.Errorf("add interface %s: %w", attrs.Name, err)
	}
	// A pod may reach itself through its own host port: the packet goes back where it came from.
	if err := netlink.LinkSetHairpin(veth, true); err != nil {
		return fmt.Errorf("set hairpin of %s: %w", attrs.Name, err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("set up %s: %w", attrs.Name, err)
	}
	return configurePod(ns, netip.PrefixFrom(a.Address, cidr.Bits()), Gateway(cidr))
}

func configurePod(ns netns.NsHandle, address netip.Prefix, gateway netip.Addr) error {
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("netlink in the pod: %w", err)
	}
	defer inside.Close()
	for _, name := range []string{"lo", "eth0"} {
		link, err := inside.LinkByName(name)
		if err != nil {
			return fmt.Errorf("%s in the pod: %w", name, err)
		}
		if name == "eth0" {
			if err := inside.AddrAdd(link, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
				return fmt.Errorf("add address %s: %w", address, err)
			}
		}
		if err := inside.LinkSetUp(link); err != nil {
			return fmt.Errorf("set up %s in the pod: %w", name, err)
		}
		if name == "eth0" {
			route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice()}
			if err := inside.RouteAdd(route); err != nil {
				return fmt.Errorf("add default route: %w", err)
			}
		}
	}
	return nil
}

func (b *Bridge) disconnect(uid string) error {
	link, err := netlink.LinkByName(linkName(uid))
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove interface of pod %s: %w", uid, err)
	}
	return nil
}

// Attached says whether a pod's interface and record are there.
func (b *Bridge) Attached(uid string) bool {
	b.mu.Lock()
	_, ok := b.pods[uid]
	b.mu.Unlock()
	if !ok {
		return false
	}
	_, err := netlink.LinkByName(linkName(uid))
	return err == nil
}

// Detach removes what Attach made. A pod that isn't attached is success.
func (b *Bridge) Detach(_ context.Context, uid string) error {
	if err := b.disconnect(uid); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok := b.pods[uid]
	if !ok {
		return nil
	}
	if len(a.HostPorts) > 0 {
		if err := b.removeHostPorts(func(owner string) bool { return owner == uid }); err != nil {
			return fmt.Errorf("remove host ports of pod %s: %w", uid, err)
		}
	}
	// The record goes last: as long as it is there, nobody else gets the address.
	if err := os.Remove(b.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget address of pod %s: %w", uid, err)
	}
	delete(b.pods, uid)
	return nil
}

// GC removes what killed agents left of pods that are not to be kept: interfaces, rules and records.
func (b *Bridge) GC(ctx context.Context, keep map[string]bool) error {
	b.mu.Lock()
	var gone []string
	for uid := range b.pods {
		if !keep[uid] {
			gone = append(gone, uid)
		}
	}
	b.mu.Unlock()
	var errs []error
	for _, uid := range gone {
		b.logger.Info("network of a pod that is gone is removed", "pod_uid", uid)
		errs = append(errs, b.Detach(ctx, uid))
	}
	names := map[string]bool{}
	for uid := range keep {
		names[linkName(uid)] = true
	}
	errs = append(errs, b.removeLinks(func(name string) bool { return !names[name] }))
	b.mu.Lock()
	defer b.mu.Unlock()
	errs = append(errs, b.removeHostPorts(func(owner string) bool { return !keep[owner] }))
	return errors.Join(errs...)
}

// removeLinks removes interfaces of pods on our bridge.
func (b *Bridge) removeLinks(match func(name string) bool) error {
	bridge, err := netlink.LinkByName(b.cfg.BridgeName)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", b.cfg.BridgeName, err)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.MasterIndex == bridge.Attrs().Index && strings.HasPrefix(attrs.Name, linkPrefix) && match(attrs.Name) {
			if err := netlink.LinkDel(link); err != nil {
				errs = append(errs, fmt.Errorf("remove interface %s: %w", attrs.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Teardown removes everything: pods' interfaces, the bridge, the table, the records. Forwarding stays on, since others
// may have come to rely on it.
func (b *Bridge) Teardown(ctx context.Context) error {
	if err := b.GC(ctx, nil); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cidr = netip.Prefix{}
	link, err := netlink.LinkByName(b.cfg.BridgeName)
	if err == nil {
		err = netlink.LinkDel(link)
	} else if errors.As(err, &netlink.LinkNotFoundError{}) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("remove bridge %s: %w", b.cfg.BridgeName, err)
	}
	if err := b.removeTable(); err != nil {
		return fmt.Errorf("remove nftables table %s: %w", b.cfg.TableName, err)
	}
	return nil
}
