package watchcache

import "slices"

// Names of the indexes that every kind has.
const (
	// ByNamespace narrows to a namespace.
	ByNamespace = "metadata.namespace"
	// ByKey narrows to one object: namespace/name, or the name where the kind has no namespaces.
	ByKey = "metadata.name"
)

// Scope narrows what a watcher is offered to the objects that have, or had before the change, a value in an index. It
// rules out nothing else: the watcher still filters. The zero Scope is everything.
type Scope struct{ Index, Value string }

// offers finds for an event the watchers that may want it, without looking at the others.
type offers struct {
	all    []*Watcher
	by     map[Scope][]*Watcher
	active []string // indexes that somebody watches by
	count  map[string]int
	values []string // scratch
}

func newOffers() offers {
	return offers{by: map[Scope][]*Watcher{}, count: map[string]int{}}
}

func (o *offers) add(w *Watcher) {
	if w.scope == (Scope{}) {
		w.slot = len(o.all)
		o.all = append(o.all, w)
		return
	}
	w.slot = len(o.by[w.scope])
	o.by[w.scope] = append(o.by[w.scope], w)
	if o.count[w.scope.Index]++; o.count[w.scope.Index] == 1 {
		o.active = append(o.active, w.scope.Index)
	}
}

func (o *offers) remove(w *Watcher) {
	if w.scope == (Scope{}) {
		o.all = cut(o.all, w)
		return
	}
	if left := cut(o.by[w.scope], w); len(left) > 0 {
		o.by[w.scope] = left
	} else {
		delete(o.by, w.scope)
	}
	if o.count[w.scope.Index]--; o.count[w.scope.Index] == 0 {
		i := slices.Index(o.active, w.scope.Index)
		o.active = slices.Delete(o.active, i, i+1)
	}
}

// cut takes w out of the list; the last one takes its place.
func cut(list []*Watcher, w *Watcher) []*Watcher {
	last := len(list) - 1
	list[w.slot] = list[last]
	list[w.slot].slot = w.slot
	list[last] = nil
	return list[:last]
}

func (o *offers) each(fn func(*Watcher)) {
	for _, w := range o.all {
		fn(w)
	}
	for _, list := range o.by {
		for _, w := range list {
			fn(w)
		}
	}
}

// find calls fn with each watcher by an index that may want the event, once: a watcher has one scope, and no value is
// looked up twice.
func (o *offers) find(t *topic, e *Event, fn func(*Watcher)) {
	for _, index := range o.active {
		o.values = o.values[:0]
		emit := func(value string) {
			if !slices.Contains(o.values, value) {
				o.values = append(o.values, value)
			}
		}
		switch index {
		case ByNamespace:
			namespace, _ := SplitKey(e.Key())
			emit(namespace)
		case ByKey:
			emit(e.Key()[len(t.prefix):])
		default:
			read := t.indexes[index]
			for _, object := range []*Object{e.Now, e.Before} {
				if object == nil {
					continue
				}
				if payload, err := object.Payload(); err == nil {
					read(payload, emit)
				}
			}
		}
		for _, value := range o.values {
			for _, w := range o.by[Scope{index, value}] {
				fn(w)
			}
		}
	}
}
