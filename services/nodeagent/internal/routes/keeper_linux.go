package routes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

const (
	// protocol marks our routes in the kernel. Routing daemons have numbers of their own; this one is nobody's.
	protocol = 116
	// safetyPeriod is how often routes are looked at though nothing has told of a change.
	safetyPeriod = 30 * time.Second
	// resubscribe is the pause before the kernel is listened to again.
	resubscribe = time.Second
	// podLinks begin the names of pods' interfaces, which come and go without a meaning for routes.
	podLinks = "tr-"
)

// Config says whose routes to keep.
type Config struct {
	// Node is this node's name.
	Node string
	// Namespace is the network namespace to work in; nil means that of the process.
	Namespace *netns.NsHandle
}

// Keeper keeps the routes of one host.
type Keeper struct {
	cfg   Config
	deps  Deps
	nodes *informer.Informer[*corev1.Node]
	// poke has room for one token: something may have changed.
	poke chan struct{}
	// told are the problems last reported, by node.
	told map[string]string
}

// New adds the watch of all nodes to the factory, which must not run yet.
func New(cfg Config, deps Deps) *Keeper {
	k := &Keeper{cfg: cfg, deps: deps, poke: make(chan struct{}, 1), told: map[string]string{}}
	k.nodes = informer.Of[*corev1.Node](deps.Factory, informer.Config{})
	k.nodes.AddHandler(informer.Handler[*corev1.Node]{
		Add: func(*corev1.Node, bool) { k.wake() },
		Update: func(old, now *corev1.Node) {
			// Heartbeats change neither.
			if old.GetSpec().GetPodCidr() != now.GetSpec().GetPodCidr() || addresses(old) != addresses(now) {
				k.wake()
			}
		},
		Delete: func(*corev1.Node) { k.wake() },
	})
	return k
}

func addresses(n *corev1.Node) string {
	var b strings.Builder
	for _, a := range n.GetStatus().GetAddresses() {
		b.WriteString(a.GetType() + "=" + a.GetAddress() + ",")
	}
	return b.String()
}

func (k *Keeper) wake() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// Run keeps the routes until ctx ends. They stay then: pods run on.
func (k *Keeper) Run(ctx context.Context) error {
	// Before all nodes are known, routes of those that are not would be taken for left over.
	if err := k.deps.Factory.WaitForSync(ctx); err != nil {
		return nil
	}
	handle, err := k.handle()
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer handle.Close()
	return daemon.Run(ctx,
		daemon.Task{Name: "keep routes", Run: func(ctx context.Context) error { return k.keep(ctx, handle) }},
		daemon.Task{Name: "routes safety", Run: func(ctx context.Context) error {
			return loop.Every(ctx, loop.Config{Name: "routes safety", Period: safetyPeriod, Jitter: 0.1, Logger: k.deps.Logger}, func(context.Context) error {
				k.wake()
				return nil
			})
		}},
		daemon.Task{Name: "listen to the kernel", Run: func(ctx context.Context) error {
			return loop.Every(ctx, loop.Config{Name: "listen to the kernel", Period: resubscribe, Logger: k.deps.Logger}, k.listen)
		}},
	)
}

func (k *Keeper) handle() (*netlink.Handle, error) {
	if k.cfg.Namespace != nil {
		return netlink.NewHandleAt(*k.cfg.Namespace, unix.NETLINK_ROUTE)
	}
	return netlink.NewHandle(unix.NETLINK_ROUTE)
}

func (k *Keeper) keep(ctx context.Context, handle *netlink.Handle) error {
	logged := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.poke:
		}
		err := k.sync(ctx, handle)
		if err == nil {
			logged = ""
		} else if err.Error() != logged {
			// Once: the safety loop tries for as long as it takes.
			logged = err.Error()
			k.deps.Logger.LogAttrs(ctx, slog.LevelError, "routes not kept, will retry", slog.Any(telemetry.KeyError, err))
		}
	}
}

// sync makes the kernel's routes what the nodes ask for.
func (k *Keeper) sync(ctx context.Context, handle *netlink.Handle) error {
	nodes := k.nodes.Lister().List("", nil)
	peers, problems := Peers(k.cfg.Node, nodes)
	var want []Route
	var ranges []netip.Prefix
	to := map[netip.Prefix]string{}
	for _, p := range peers {
		route, problem, err := resolve(handle, p)
		switch {
		case err != nil:
			return err
		case problem != "":
			problems = append(problems, Problem{p.Node, problem})
		case route.Link != 0:
			want, ranges = append(want, route), append(ranges, p.Pods)
			to[p.Pods] = p.Node
		}
	}
	// First: a packet that takes a new route is not to be masqueraded.
	if err := k.deps.SetPeers(ctx, ranges); err != nil {
		return err
	}
	have, err := list(handle)
	if err != nil {
		return err
	}
	add, del := Diff(want, have)
	for _, r := range del {
		if err := handle.RouteDel(r.netlink()); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route %s: %w", r, err)
		}
		k.deps.Logger.LogAttrs(ctx, slog.LevelInfo, "route to pods removed", slog.String("route", r.String()))
	}
	var errs []error
	for _, r := range add {
		switch err := handle.RouteAdd(r.netlink()); {
		case errors.Is(err, os.ErrExist):
			// Whoever made it may need it; ours would replace it.
			problems = append(problems, Problem{to[r.Pods], fmt.Sprintf("a route to %s that is not ours is there already (ip route show %[1]s)", r.Pods)})
		case err != nil:
			errs = append(errs, fmt.Errorf("add route %s: %w", r, err))
		default:
			k.deps.Logger.LogAttrs(ctx, slog.LevelInfo, "route to pods added",
				slog.String("route", r.String()), slog.String("peer", to[r.Pods]))
		}
	}
	k.tell(ctx, nodes, problems)
	return errors.Join(errs...)
}

// tell reports problems that are new, to the log and as events of the node that is not reached.
func (k *Keeper) tell(ctx context.Context, nodes []*corev1.Node, problems []Problem) {
	now := map[string]string{}
	for _, p := range problems {
		now[p.Node] = p.Message
		if k.told[p.Node] == p.Message {
			continue
		}
		k.deps.Logger.LogAttrs(ctx, slog.LevelWarn, "pods of a node cannot be reached from here",
			slog.String("peer", p.Node), slog.String("reason", p.Message))
		for _, n := range nodes {
			if n.GetMetadata().GetName() == p.Node {
				k.deps.Events.Event(n, event.Warning, "NodeNotRouted",
					fmt.Sprintf("pods of this node cannot be reached from pods of node %s: %s", k.cfg.Node, p.Message))
			}
		}
	}
	k.told = now
}

// resolve finds the way to a peer. Neither a route nor a problem means that it is this machine.
func resolve(handle *netlink.Handle, p Peer) (route Route, problem string, err error) {
	for _, address := range p.Addresses {
		if address.IsLoopback() {
			return Route{}, "", nil // simulated nodes, or another agent, of this machine
		}
		found, err := handle.RouteGet(address.AsSlice())
		switch {
		case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EINVAL):
			problem = fmt.Sprintf("this host has no route to its address %s", address)
		case err != nil:
			return Route{}, "", fmt.Errorf("look up the route to %s: %w", address, err)
		case len(found) == 0:
			problem = fmt.Sprintf("this host has no route to its address %s", address)
		case found[0].Type == unix.RTN_LOCAL:
			return Route{}, "", nil
		case len(found[0].Gw) > 0:
			problem = fmt.Sprintf("its address %s is behind router %s and not on a link of this host: nodes must share a network, "+
				"or --node-ip must name the address on the one that they share", address, found[0].Gw)
		default:
			return Route{Pods: p.Pods, Via: address, Link: found[0].LinkIndex}, "", nil
		}
	}
	return Route{}, problem, nil
}

// list reads our routes.
func list(handle *netlink.Handle) ([]Route, error) {
	found, err := handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: protocol, Table: unix.RT_TABLE_MAIN},
		netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var out []Route
	for _, f := range found {
		r := Route{Link: f.LinkIndex}
		if f.Dst != nil {
			ip, _ := netip.AddrFromSlice(f.Dst.IP.To4())
			ones, _ := f.Dst.Mask.Size()
			r.Pods = netip.PrefixFrom(ip, ones)
		}
		r.Via, _ = netip.AddrFromSlice(f.Gw.To4())
		out = append(out, r)
	}
	return out, nil
}

func (r Route) netlink() *netlink.Route {
	out := &netlink.Route{LinkIndex: r.Link, Protocol: protocol, Table: unix.RT_TABLE_MAIN}
	out.Dst = &net.IPNet{IP: r.Pods.Addr().AsSlice(), Mask: net.CIDRMask(r.Pods.Bits(), r.Pods.Addr().BitLen())}
	if r.Via.IsValid() {
		out.Gw = r.Via.AsSlice()
	}
	return out
}

// listen wakes the keeper whenever something in the kernel may have touched a route of ours, until ctx ends or the kernel
// has lost what it had to tell; then it is called again.
func (k *Keeper) listen(ctx context.Context) error {
	at := netns.None()
	if k.cfg.Namespace != nil {
		at = *k.cfg.Namespace
	}
	socket, err := nl.SubscribeAt(at, netns.None(), unix.NETLINK_ROUTE,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_LINK)
	if err != nil {
		return fmt.Errorf("listen to routes: %w", err)
	}
	stop := context.AfterFunc(ctx, socket.Close)
	defer func() {
		if stop() {
			socket.Close()
		}
	}()
	// What happened before the subscription, or between two.
	k.wake()
	for {
		messages, _, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			k.wake() // more was to be told than there was room for
			continue
		case err != nil:
			return fmt.Errorf("listen to routes: %w", err)
		}
		for _, m := range messages {
			if matters(m.Header.Type, m.Data) {
				k.wake()
			}
		}
	}
}

// matters tells changes that may concern our routes from the coming and going of pods.
func matters(kind uint16, data []byte) bool {
	switch kind {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return true
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		link, err := netlink.LinkDeserialize(nil, data)
		return err != nil || !strings.HasPrefix(link.Attrs().Name, podLinks)
	}
	return true
}

// Remove removes all routes of ours from the host.
func Remove() error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer handle.Close()
	have, err := list(handle)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range have {
		if err := handle.RouteDel(r.netlink()); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove route %s: %w", r, err))
		}
	}
	return errors.Join(errs...)
}
