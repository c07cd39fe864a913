package watchcache

import "slices"

// lookup finds objects of the present state by the value that an index reads off them. Objects without a value, or with an
// empty one, are not in it.
type lookup struct {
	read Index
	by   map[string][]*Object
}

func newLookups(k Kind) map[string]*lookup {
	out := make(map[string]*lookup, len(k.Lookups))
	for _, name := range k.Lookups {
		out[name] = &lookup{read: k.Indexes[name], by: map[string][]*Object{}}
	}
	return out
}

// change puts now in the place of before; either may be nil.
func (l *lookup) change(before, now *Object) {
	l.each(before, func(value string) {
		list := l.by[value]
		i := slices.Index(list, before)
		switch {
		case i < 0:
		case len(list) == 1:
			delete(l.by, value)
		default:
			last := len(list) - 1
			list[i], list[last] = list[last], nil
			l.by[value] = list[:last]
		}
	})
	l.each(now, func(value string) { l.by[value] = append(l.by[value], now) })
}

func (l *lookup) each(o *Object, fn func(value string)) {
	if o == nil {
		return
	}
	payload, err := o.Payload()
	if err != nil {
		return
	}
	l.read(payload, func(value string) {
		if value != "" {
			fn(value)
		}
	})
}

// rebuild reads a whole state.
func (l *lookup) rebuild(state *tree) {
	l.by = map[string][]*Object{}
	state.Ascend(func(o *Object) bool {
		l.change(nil, o)
		return true
	})
}

// Lookup returns the objects of a kind that have a value in one of its Lookups, as far as the cache has come, in no order.
// It costs as much as there are of them.
func (c *Cache) Lookup(prefix, index, value string) []*Object {
	t := c.topics[prefix]
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lookups[index]
	if l == nil {
		return nil
	}
	return slices.Clone(l.by[value])
}

// Find returns one object of a kind, as far as the cache has come. Unlike Current it makes no snapshot.
func (c *Cache) Find(prefix, key string) (*Object, bool) {
	t := c.topics[prefix]
	if t == nil {
		return nil, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.Get(&Object{Key: key})
}
