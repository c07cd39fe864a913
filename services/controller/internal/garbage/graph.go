package garbage

import (
	"maps"
	"slices"
	"sync"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"

	"trireme.dev/client"
	"trireme.dev/client/kind"
)

// graph knows, of every object, its owners and its dependents, by UID. It is safe for concurrent use.
type graph struct {
	mu         sync.Mutex
	objects    map[string]object
	dependents map[string]map[string]bool
}

// object is what the graph knows of one.
type object struct {
	kind      *kind.Kind
	namespace string
	name      string
	owners    []*metav1.OwnerReference
	// waits is the finalizer that holds an object being deleted until its dependents are dealt with; empty for none.
	waits string
}

func newGraph() *graph {
	return &graph{objects: map[string]object{}, dependents: map[string]map[string]bool{}}
}

// put enters an object as it is now.
func (g *graph) put(k *kind.Kind, o client.Object) {
	m := o.GetMetadata()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unlink(m.GetUid())
	g.objects[m.GetUid()] = object{kind: k, namespace: m.GetNamespace(), name: m.GetName(), owners: m.GetOwnerReferences(), waits: waitsFor(m)}
	for _, owner := range m.GetOwnerReferences() {
		if g.dependents[owner.GetUid()] == nil {
			g.dependents[owner.GetUid()] = map[string]bool{}
		}
		g.dependents[owner.GetUid()][m.GetUid()] = true
	}
}

// waitsFor is the finalizer by which an object that is being deleted waits for its dependents.
func waitsFor(m *metav1.ObjectMeta) string {
	if m.GetDeletionTimestamp() == nil {
		return ""
	}
	for _, f := range m.GetFinalizers() {
		if f == foreground || f == orphan {
			return f
		}
	}
	return ""
}

// remove takes an object out and returns the UIDs of those that this concerns: its dependents and its owners.
func (g *graph) remove(uid string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	concerned := slices.Sorted(maps.Keys(g.dependents[uid]))
	for _, owner := range g.objects[uid].owners {
		concerned = append(concerned, owner.GetUid())
	}
	g.unlink(uid)
	delete(g.objects, uid)
	return concerned
}

// dependentsOf returns the UIDs of an object's dependents.
func (g *graph) dependentsOf(uid string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.dependents[uid]))
}

// unlink removes an object from its owners' dependents; the caller holds mu.
func (g *graph) unlink(uid string) {
	for _, owner := range g.objects[uid].owners {
		delete(g.dependents[owner.GetUid()], uid)
		if len(g.dependents[owner.GetUid()]) == 0 {
			delete(g.dependents, owner.GetUid())
		}
	}
}

// get returns an object, and whether it is there.
func (g *graph) get(uid string) (object, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o, ok := g.objects[uid]
	return o, ok
}
