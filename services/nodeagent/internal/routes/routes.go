// Package routes makes pods on two nodes reach each other by address: for every other node on the same network it keeps a
// route of the host to that node's pods, through that node, and it tells the pod network which addresses are pods, so that
// they are not masqueraded.
//
// It owns the routes of one protocol number in the main table and touches no others. It reads Nodes and never writes
// one; nodes that are not on a link of this host are reported, not tunnelled to. It stands beside the pods' chain: no pod
// waits for it.
package routes

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// Deps are what a Keeper works with.
type Deps struct {
	Factory *informer.Factory
	Events  *event.Recorder
	Logger  *slog.Logger
	// SetPeers tells the pod network the ranges of other nodes' pods.
	SetPeers func(context.Context, []netip.Prefix) error
}

// Route leads to the pods of one node.
type Route struct {
	// Pods are the node's pod addresses.
	Pods netip.Prefix
	// Via is the node's own address.
	Via netip.Addr
	// Link is the interface by which Via is reached.
	Link int
}

// String gives the route as `ip route` writes it.
func (r Route) String() string { return fmt.Sprintf("%s via %s", r.Pods, r.Via) }

// Peer is another node, as its object says.
type Peer struct {
	// Node is its name.
	Node string
	// Pods are its pod addresses.
	Pods netip.Prefix
	// Addresses of the node itself, in its order.
	Addresses []netip.Addr
}

// Problem is why there is no route to a node.
type Problem struct {
	// Node is the other node.
	Node string
	// Message says what is the matter, and the way out.
	Message string
}

// Peers picks out of all nodes those that pods of the node self may want to reach. Nodes that have no addresses yet are left
// out in silence; what contradicts itself is a problem. Both are in order of names.
func Peers(self string, nodes []*corev1.Node) (peers []Peer, problems []Problem) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int {
		// This node first: its own range is not to be given away.
		if am, bm := a.GetMetadata().GetName() == self, b.GetMetadata().GetName() == self; am != bm {
			if am {
				return -1
			}
			return 1
		}
		return strings.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName())
	})
	var taken []Peer
	for _, n := range nodes {
		p := Peer{Node: n.GetMetadata().GetName()}
		cidr := n.GetSpec().GetPodCidr()
		if cidr == "" {
			continue
		}
		pods, err := netip.ParsePrefix(cidr)
		if err != nil || !pods.Addr().Is4() {
			problems = append(problems, Problem{p.Node, fmt.Sprintf("its spec.podCIDR %q is no IPv4 range", cidr)})
			continue
		}
		p.Pods = pods.Masked()
		for _, a := range n.GetStatus().GetAddresses() {
			if ip, err := netip.ParseAddr(a.GetAddress()); err == nil && a.GetType() == "InternalIP" && ip.Unmap().Is4() {
				p.Addresses = append(p.Addresses, ip.Unmap())
			}
		}
		if i := slices.IndexFunc(taken, func(t Peer) bool { return t.Pods.Overlaps(p.Pods) }); i >= 0 {
			problems = append(problems, Problem{p.Node, fmt.Sprintf("its pod range %s overlaps %s of node %s", p.Pods, taken[i].Pods, taken[i].Node)})
			continue
		}
		taken = append(taken, p)
		if p.Node == self || len(p.Addresses) == 0 {
			continue
		}
		if slices.ContainsFunc(p.Addresses, p.Pods.Contains) {
			problems = append(problems, Problem{p.Node, fmt.Sprintf("its own address lies in its pod range %s", p.Pods)})
			continue
		}
		peers = append(peers, p)
	}
	return peers, problems
}

// Diff tells what leads from the routes there are to those that are wanted. Removals are to be done first: a range may get
// another way.
func Diff(want, have []Route) (add, del []Route) {
	for _, r := range have {
		if !slices.Contains(want, r) {
			del = append(del, r)
		}
	}
	for _, r := range want {
		if !slices.Contains(have, r) {
			add = append(add, r)
		}
	}
	return add, del
}
