package cache

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

const (
	labelZone   = "topology.kubernetes.io/zone"
	labelRegion = "topology.kubernetes.io/region"
)

// Snapshot is a cache as it was at one moment, for one goroutine. It owns its NodeInfos. It implements
// framework.Snapshot. The zero value is an empty cluster.
type Snapshot struct {
	nodes      []*framework.NodeInfo
	byName     map[string]*framework.NodeInfo
	generation int64
	order      int64
}

// Nodes implements framework.Snapshot. Zones take turns, by name, and nodes within a zone follow by name, so that a
// search from any place meets all zones soon and the order never depends on chance.
func (s *Snapshot) Nodes() []*framework.NodeInfo { return s.nodes }

// Node implements framework.Snapshot.
func (s *Snapshot) Node(name string) *framework.NodeInfo { return s.byName[name] }

// Assume puts a pod on a node in this snapshot only.
func (s *Snapshot) Assume(pod *framework.PodInfo, node string) { s.byName[node].AddPod(pod) }

// Forget takes back Assume. Called in the reverse order of Assume, it leaves no trace.
func (s *Snapshot) Forget(pod *framework.PodInfo, node string) error {
	return s.byName[node].RemovePod(pod.UID())
}

// Update brings a snapshot up to date. It copies what has changed since its last update and nothing else.
func (c *Cache) Update(s *Snapshot) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.byName == nil {
		s.byName = make(map[string]*framework.NodeInfo)
	}
	for el := c.recent.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		if e.info.Generation <= s.generation {
			break // all that follow are older
		}
		if e.info.Node == nil {
			delete(s.byName, e.name)
			continue
		}
		info := s.byName[e.name]
		if info == nil {
			info = &framework.NodeInfo{}
			s.byName[e.name] = info
		}
		info.CopyFrom(&e.info)
	}
	s.generation = c.generation
	if s.order != c.order {
		c.rebuild(s)
	}
	if len(s.nodes) != len(s.byName) {
		c.rebuild(s)
		return fmt.Errorf("snapshot: %d nodes in order, %d by name", len(s.nodes), len(s.byName))
	}
	return nil
}

// rebuild makes the list of nodes anew and drops those that are gone.
func (c *Cache) rebuild(s *Snapshot) {
	maps.DeleteFunc(s.byName, func(name string, _ *framework.NodeInfo) bool {
		el, ok := c.nodes[name]
		return !ok || el.Value.(*entry).info.Node == nil
	})
	byZone := make(map[string][]*framework.NodeInfo)
	for _, info := range s.byName {
		z := zoneOf(info.Node)
		byZone[z] = append(byZone[z], info)
	}
	zones := slices.Sorted(maps.Keys(byZone))
	for _, z := range zones {
		slices.SortFunc(byZone[z], func(a, b *framework.NodeInfo) int { return cmp.Compare(a.Name(), b.Name()) })
	}
	s.nodes = make([]*framework.NodeInfo, 0, len(s.byName))
	for i := 0; len(s.nodes) < len(s.byName); i++ {
		for _, z := range zones {
			if i < len(byZone[z]) {
				s.nodes = append(s.nodes, byZone[z][i])
			}
		}
	}
	s.order = c.order
}

func zoneOf(node *corev1.Node) string {
	labels := node.GetMetadata().GetLabels()
	return labels[labelRegion] + "/" + labels[labelZone]
}
