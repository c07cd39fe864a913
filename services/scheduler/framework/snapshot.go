package framework

import (
	"cmp"
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// Labels that say where a node is.
const (
	LabelHostname = "kubernetes.io/hostname"
	LabelZone     = "topology.kubernetes.io/zone"
	LabelRegion   = "topology.kubernetes.io/region"
)

// Snapshot is the cluster as one cycle sees it: its nodes with the pods on them, in an order that never depends on
// chance. Zones take turns, by name, and nodes within a zone follow by name, so that a search from any place meets all
// zones soon. It belongs to one goroutine, does not change while a plugin runs, and owns its NodeInfos. The zero value
// is an empty cluster.
type Snapshot struct {
	columns    Columns
	byName     map[string]*NodeInfo
	zones      []zone // by name
	stale      bool   // nodes came, went or moved since positions were given out
	epoch      uint64
	all        []int32
	within     *Placement
	members    []bool // of within
	namespaces map[string]map[string]string
	counters   counters
	groups     groupIndex
	journal    journal
	books      Books
	mates      []Assignment
}

type zone struct {
	name  string
	nodes []*NodeInfo // by name
}

// NewSnapshot is a cluster of these nodes, with pods on the nodes that their specs name, for tests of plugins.
func NewSnapshot(nodes []*corev1.Node, pods []*PodInfo) (*Snapshot, error) {
	s := &Snapshot{}
	for _, n := range nodes {
		var info NodeInfo
		if err := info.SetNode(n); err != nil {
			return nil, err
		}
		for _, p := range pods {
			if p.Pod.GetSpec().GetNodeName() == info.Name() {
				info.AddPod(p)
			}
		}
		s.Put(&info)
	}
	s.Settle()
	return s, nil
}

// Nodes in the order in which they are looked at, those outside the placement included. Not to be changed.
func (s *Snapshot) Nodes() []*NodeInfo { return s.columns.Nodes }

// Node of that name, nil where there is none.
func (s *Snapshot) Node(name string) *NodeInfo { return s.byName[name] }

// Columns of the nodes.
func (s *Snapshot) Columns() *Columns { return &s.columns }

// Positions of the nodes that the pod may be placed on as far as the placement in progress goes, ascending: all of them
// outside of placements. Not to be changed.
func (s *Snapshot) Positions() []int32 {
	if s.within != nil && s.within.Positions != nil {
		return s.within.Positions
	}
	return s.all
}

// Placement that is being tried; nil for none, which means all nodes.
func (s *Snapshot) Placement() *Placement { return s.within }

// InPlacement reports whether a position is among Positions.
func (s *Snapshot) InPlacement(position int32) bool {
	return s.members == nil || s.members[position]
}

// Within restricts Positions to a placement until the next call; nil lifts the restriction. It is the cycle's.
func (s *Snapshot) Within(p *Placement) {
	for _, i := range s.restricted() {
		s.members[i] = false
	}
	s.within = p
	if s.restricted() == nil {
		s.members = nil
		return
	}
	if len(s.members) != len(s.all) {
		s.members = make([]bool, len(s.all))
	}
	for _, i := range s.restricted() {
		s.members[i] = true
	}
}

func (s *Snapshot) restricted() []int32 {
	if s.within == nil {
		return nil
	}
	return s.within.Positions
}

// Epoch changes when positions do: when a node comes, goes or moves to another zone.
func (s *Snapshot) Epoch() uint64 { return s.epoch }

// NamespaceLabels of a namespace; nil where it is not known.
func (s *Snapshot) NamespaceLabels(namespace string) map[string]string {
	return s.namespaces[namespace]
}

// Assume puts a pod on a node in this snapshot only: nodes, columns and counters all know of it.
func (s *Snapshot) Assume(pod *PodInfo, node string) {
	n := s.byName[node]
	n.AddPod(pod)
	s.touched(n)
	s.counters.pod(s, n.Index, pod, 1)
	s.groups.add(n, pod, 1)
	s.charge(pod, 1)
}

// Mates are the members of the gang in progress that were put on nodes so far, in that order. Not to be changed.
func (s *Snapshot) Mates() []Assignment { return s.mates }

// SetMates says who they are. It is the cycle's.
func (s *Snapshot) SetMates(mates []Assignment) { s.mates = mates }

// Forget takes back Assume, and takes off a pod in thought. Called in the reverse order of Assume, it leaves no trace.
func (s *Snapshot) Forget(pod *PodInfo, node string) error {
	n := s.byName[node]
	if err := n.RemovePod(pod.UID()); err != nil {
		return err
	}
	s.touched(n)
	s.counters.pod(s, n.Index, pod, -1)
	s.groups.add(n, pod, -1)
	s.charge(pod, -1)
	return nil
}

func (s *Snapshot) touched(n *NodeInfo) {
	s.columns.setPods(int(n.Index), n)
	s.journal.note(n.Index)
}

// Put takes over the state of a node, which must exist, from a cache: what is new of it is found out, and counted. Settle
// comes after the last.
func (s *Snapshot) Put(info *NodeInfo) {
	name := info.Name()
	n := s.byName[name]
	if n == nil {
		if s.byName == nil {
			s.byName = make(map[string]*NodeInfo)
		}
		n = info.Clone()
		n.Index = -1
		s.groups.replace(n, nil, n.Pods)
		s.byName[name] = n
		s.place(n)
		return
	}
	if was, is := zoneOf(n.Node), zoneOf(info.Node); was != is {
		s.unplace(n)
		defer s.place(n)
	}
	i, nodeChanged, images := n.Index, n.Node != info.Node, n.Images
	if i >= 0 {
		s.counters.replace(s, i, n.Pods, info.Pods)
	}
	s.groups.replace(n, n.Pods, info.Pods)
	n.CopyFrom(info)
	n.Index = i
	if i < 0 {
		return
	}
	if nodeChanged {
		s.columns.setNode(int(i), n)
		s.columns.setImages(i, images, n.Images)
		for _, l := range s.columns.labels {
			if was, is := l.Values[i], l.intern(n); was != is {
				l.Values[i] = is
				s.counters.relabel(l, i, was, is)
			}
		}
	}
	s.touched(n)
}

// Drop forgets a node with all pods on it. Settle comes after the last.
func (s *Snapshot) Drop(name string) {
	if n := s.byName[name]; n != nil {
		s.groups.replace(n, n.Pods, nil)
		s.unplace(n)
		delete(s.byName, name)
	}
}

// Names of all nodes, in no order.
func (s *Snapshot) Names(yield func(string) bool) {
	for name := range s.byName {
		if !yield(name) {
			return
		}
	}
}

// SetNamespaces takes over the labels of all namespaces. The map and those in it must not change afterwards.
func (s *Snapshot) SetNamespaces(labels map[string]map[string]string) {
	s.namespaces = labels
	s.counters.namespacesChanged()
}

// Settle gives out positions anew where nodes came, went or moved.
func (s *Snapshot) Settle() {
	s.counters.tick()
	if !s.stale {
		return
	}
	s.stale = false
	s.Within(nil)
	nodes := make([]*NodeInfo, 0, len(s.byName))
	for i := 0; len(nodes) < len(s.byName); i++ {
		for _, z := range s.zones {
			if i < len(z.nodes) {
				nodes = append(nodes, z.nodes[i])
			}
		}
	}
	was := make([]int32, len(nodes))
	for i, n := range nodes {
		was[i], n.Index = n.Index, int32(i)
	}
	s.columns.rebuild(nodes)
	s.all = positions(len(nodes))
	s.epoch++
	s.journal.reset(len(nodes))
	s.counters.move(s, was)
}

func (s *Snapshot) place(n *NodeInfo) {
	s.stale = true
	name := zoneOf(n.Node)
	i, ok := slices.BinarySearchFunc(s.zones, name, func(z zone, name string) int { return cmp.Compare(z.name, name) })
	if !ok {
		s.zones = slices.Insert(s.zones, i, zone{name: name})
	}
	z := &s.zones[i]
	j, _ := slices.BinarySearchFunc(z.nodes, n.Name(), compareNode)
	z.nodes = slices.Insert(z.nodes, j, n)
}

func (s *Snapshot) unplace(n *NodeInfo) {
	s.stale = true
	name := zoneOf(n.Node)
	i, _ := slices.BinarySearchFunc(s.zones, name, func(z zone, name string) int { return cmp.Compare(z.name, name) })
	z := &s.zones[i]
	j, _ := slices.BinarySearchFunc(z.nodes, n.Name(), compareNode)
	if z.nodes = slices.Delete(z.nodes, j, j+1); len(z.nodes) == 0 {
		s.zones = slices.Delete(s.zones, i, i+1)
	}
}

func compareNode(n *NodeInfo, name string) int { return cmp.Compare(n.Name(), name) }

func zoneOf(node *corev1.Node) string {
	labels := node.GetMetadata().GetLabels()
	return labels[LabelRegion] + "/" + labels[LabelZone]
}
