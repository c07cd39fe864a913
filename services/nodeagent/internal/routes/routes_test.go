package routes

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func node(name, cidr string, addresses ...string) *corev1.Node {
	n := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name}, Spec: &corev1.NodeSpec{}, Status: &corev1.NodeStatus{},
	}
	if cidr != "" {
		n.Spec.PodCidr = proto.String(cidr)
	}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, &corev1.NodeAddress{Type: "InternalIP", Address: a})
	}
	n.Status.Addresses = append(n.Status.Addresses, &corev1.NodeAddress{Type: "Hostname", Address: "192.0.2.9"})
	return n
}

func TestPeers(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	tests := []struct {
		name     string
		nodes    []*corev1.Node
		peers    []Peer
		problems []string
	}{
		{"alone", []*corev1.Node{node("me", "10.64.0.0/24", "10.0.0.1")}, nil, nil},
		{
			"others in order of names, IPv6 left out",
			[]*corev1.Node{node("c", "10.64.2.0/24", "fd00::3", "10.0.0.3"), node("me", "10.64.0.0/24", "10.0.0.1"), node("b", "10.64.1.0/24", "10.0.0.2", "10.1.0.2")},
			[]Peer{{"b", prefix("10.64.1.0/24"), []netip.Addr{addr("10.0.0.2"), addr("10.1.0.2")}}, {"c", prefix("10.64.2.0/24"), []netip.Addr{addr("10.0.0.3")}}},
			nil,
		},
		{"not there yet", []*corev1.Node{node("b", "", "10.0.0.2"), node("c", "10.64.2.0/24")}, nil, nil},
		{"no range", []*corev1.Node{node("b", "nonsense", "10.0.0.2"), node("c", "fd00::/64", "10.0.0.3")}, nil, []string{"b: its spec.podCIDR", "c: its spec.podCIDR"}},
		{
			"this node's own range stays its own",
			[]*corev1.Node{node("a", "10.64.0.0/16", "10.0.0.2"), node("me", "10.64.3.0/24", "10.0.0.1")},
			nil, []string{"a: its pod range 10.64.0.0/16 overlaps 10.64.3.0/24 of node me"},
		},
		{
			"two with one range: the first has it",
			[]*corev1.Node{node("b", "10.64.1.0/24", "10.0.0.2"), node("c", "10.64.1.0/24", "10.0.0.3")},
			[]Peer{{"b", prefix("10.64.1.0/24"), []netip.Addr{addr("10.0.0.2")}}},
			[]string{"c: its pod range 10.64.1.0/24 overlaps"},
		},
		{"a way that leads into itself", []*corev1.Node{node("b", "10.0.0.0/8", "10.0.0.2")}, nil, []string{"b: its own address lies in its pod range"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			peers, problems := Peers("me", tt.nodes)
			if d := cmp.Diff(tt.peers, peers, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
				t.Error(d)
			}
			if len(problems) != len(tt.problems) {
				t.Fatalf("problems %v, want %v", problems, tt.problems)
			}
			for i, p := range problems {
				if got := p.Node + ": " + p.Message; !strings.HasPrefix(got, tt.problems[i]) {
					t.Errorf("problem %q, want %q", got, tt.problems[i])
				}
			}
		})
	}
}

func TestDiff(t *testing.T) {
	route := func(pods, via string, link int) Route {
		return Route{Pods: netip.MustParsePrefix(pods), Via: netip.MustParseAddr(via), Link: link}
	}
	a, b := route("10.64.1.0/24", "10.0.0.2", 3), route("10.64.2.0/24", "10.0.0.3", 3)
	moved, otherLink := route("10.64.1.0/24", "10.0.0.9", 3), route("10.64.1.0/24", "10.0.0.2", 4)
	tests := []struct {
		name                 string
		want, have, add, del []Route
	}{
		{"nothing", nil, nil, nil, nil},
		{"first", []Route{a, b}, nil, []Route{a, b}, nil},
		{"settled", []Route{a, b}, []Route{b, a}, nil, nil},
		{"one lost", []Route{a, b}, []Route{b}, []Route{a}, nil},
		{"one gone", []Route{a}, []Route{a, b}, nil, []Route{b}},
		{"all gone", nil, []Route{a, b}, nil, []Route{a, b}},
		{"another address", []Route{moved}, []Route{a}, []Route{moved}, []Route{a}},
		{"another link", []Route{otherLink}, []Route{a}, []Route{otherLink}, []Route{a}},
	}
	for _, tt := range tests {
		add, del := Diff(tt.want, tt.have)
		same := cmp.Comparer(func(a, b Route) bool { return a == b })
		if d := cmp.Diff(tt.add, add, same) + cmp.Diff(tt.del, del, same); d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
	}
}
