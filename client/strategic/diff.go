package strategic

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Diff returns a patch that makes modified of the original and says nothing of what both have: applied to what others
// have changed since, it leaves their changes alone.
func Diff(d protoreflect.MessageDescriptor, original, modified []byte) ([]byte, error) {
	from, err := decode(original)
	if err != nil {
		return nil, fmt.Errorf("original: %w", err)
	}
	to, err := decode(modified)
	if err != nil {
		return nil, fmt.Errorf("modified: %w", err)
	}
	return json.Marshal(place{message: d}.diffObject(from, to))
}

func (p place) diffObject(from, to object) object {
	patch := object{}
	for key := range from {
		if _, ok := to[key]; !ok {
			patch[key] = nil
		}
	}
	for key, want := range to {
		have, ok := from[key]
		if ok && reflect.DeepEqual(have, want) {
			continue
		}
		f := p.field(key)
		haveObject, _ := have.(object)
		wantObject, _ := want.(object)
		haveList, _ := have.(list)
		wantList, isList := want.(list)
		switch {
		case haveObject != nil && wantObject != nil:
			patch[key] = f.diffObject(haveObject, wantObject)
		case haveList != nil && isList && f.merges && f.sameShape(haveList, wantList) == nil && f.unique(haveList) && f.unique(wantList):
			f.diffList(patch, key, haveList, wantList)
		default:
			patch[key] = want
		}
	}
	return patch
}

// diffList puts into the patch what makes one list of the other, element by element.
func (f field) diffList(patch object, key string, from, to list) {
	var changes, gone, order list
	for _, want := range to {
		order = append(order, f.onlyKey(want))
		at := indexOf(from, want, f.key)
		switch {
		case at < 0:
			changes = append(changes, want)
		case f.key != "" && !reflect.DeepEqual(from[at], want):
			have, _ := from[at].(object)
			wanted, _ := want.(object)
			change := f.diffObject(have, wanted)
			change[f.key] = wanted[f.key]
			changes = append(changes, change)
		}
	}
	for _, have := range from {
		if indexOf(to, have, f.key) >= 0 {
			continue
		}
		if element, ok := f.onlyKey(have).(object); ok {
			element[directive] = remove
			changes = append(changes, element)
		} else {
			gone = append(gone, have)
		}
	}
	if len(changes) > 0 {
		patch[key] = changes
	}
	if len(gone) > 0 {
		patch[deletePrimitive+key] = gone
	}
	patch[elementOrder+key] = slices.Clip(order)
}

// onlyKey is what tells an element from others.
func (f field) onlyKey(element any) any {
	if m, ok := element.(object); ok && f.key != "" {
		return object{f.key: m[f.key]}
	}
	return element
}

// unique reports whether no two elements are alike.
func (f field) unique(l list) bool {
	for i := range l {
		if indexOf(l, l[i], f.key) != i {
			return false
		}
	}
	return true
}
