package manifest

import "strconv"

// mapBuilder is a sink that makes maps and lists of Go.
type mapBuilder struct {
	root  any
	stack []container
}

// container is an object or a list that is being filled.
type container struct {
	object map[string]any
	list   []any
	// key under which the next value goes; of an object only.
	key string
}

func (w *mapBuilder) put(value any) {
	if len(w.stack) == 0 {
		w.root = value
		return
	}
	top := &w.stack[len(w.stack)-1]
	if top.object != nil {
		top.object[top.key] = value
		return
	}
	top.list = append(top.list, value)
}

func (w *mapBuilder) beginObject() {
	w.stack = append(w.stack, container{object: map[string]any{}})
}

func (w *mapBuilder) beginList() {
	w.stack = append(w.stack, container{list: []any{}})
}

func (w *mapBuilder) endObject() {
	done := w.stack[len(w.stack)-1].object
	w.stack = w.stack[:len(w.stack)-1]
	w.put(done)
}

func (w *mapBuilder) endList() {
	done := w.stack[len(w.stack)-1].list
	w.stack = w.stack[:len(w.stack)-1]
	w.put(done)
}

func (w *mapBuilder) key(name string)    { w.stack[len(w.stack)-1].key = name }
func (w *mapBuilder) text(value string)  { w.put(value) }
func (w *mapBuilder) boolean(value bool) { w.put(value) }
func (w *mapBuilder) null()              { w.put(nil) }

func (w *mapBuilder) integer(digits string) {
	if value, err := strconv.ParseInt(digits, 10, 64); err == nil {
		w.put(value)
		return
	}
	// Beyond int64 lie only the upper half of uint64.
	value, _ := strconv.ParseUint(digits, 10, 64)
	w.put(value)
}

// float keeps whole numbers whole, so that a path finds 8080 however the message holds it.
func (w *mapBuilder) float(value float64) {
	if whole := int64(value); float64(whole) == value && value > -1<<53 && value < 1<<53 {
		w.put(whole)
		return
	}
	w.put(value)
}
