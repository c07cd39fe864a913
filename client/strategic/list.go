package strategic

import (
	"fmt"
	"slices"
	"strings"
)

// mergeOrdered merges the lists whose order the patch gives with $setElementOrder, and takes both from the patch.
func (p place) mergeOrdered(original, patch object) error {
	for key, value := range patch {
		name, ok := strings.CutPrefix(key, elementOrder)
		if !ok {
			continue
		}
		delete(patch, key)
		order, ok := value.(list)
		if !ok {
			return fmt.Errorf("%s: must be a list", key)
		}
		have, hasOriginal := original[name]
		change, hasPatch := patch[name]
		if !hasOriginal && !hasPatch {
			continue
		}
		haveList, isList := have.(list)
		changeList, isChangeList := change.(list)
		if hasOriginal && !isList || hasPatch && !isChangeList {
			return fmt.Errorf("%s: %s is not a list", key, name)
		}
		f := p.field(name)
		if err := f.checkOrder(changeList, order); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		server := slices.Clone(haveList)
		merged := haveList
		switch {
		case !hasOriginal:
			clean, _ := withoutDirectives(changeList)
			merged, _ = clean.(list)
		case hasPatch && !f.merges:
			clean, _ := withoutDirectives(changeList)
			merged, _ = clean.(list)
		case hasPatch:
			var err error
			if merged, err = f.mergeList(haveList, changeList); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		ordered, err := f.arrange(merged, order, server)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		original[name] = ordered
		delete(patch, name)
	}
	return nil
}

// checkOrder refuses an order that lacks an element of the patch, or has two of them the other way round.
func (f field) checkOrder(patch, order list) error {
	if len(patch) == 0 || len(order) == 0 {
		return nil
	}
	at := 0
	for _, element := range patch {
		if m, ok := element.(object); ok {
			if _, special := m[directive]; special {
				continue
			}
		}
		next := indexOf(order[at:], element, f.key)
		if next < 0 {
			return fmt.Errorf("the order in the patch differs from the order asked for")
		}
		at += next + 1
	}
	return nil
}

// mergeList merges the elements of a list by their key, or as those of a set.
func (f field) mergeList(original, patch list) (list, error) {
	if len(original) == 0 && len(patch) == 0 {
		return original, nil
	}
	if err := f.sameShape(original, patch); err != nil {
		return nil, err
	}
	if f.key == "" {
		var merged list
		for _, v := range slices.Concat(original, patch) {
			if indexOf(merged, v, "") < 0 {
				merged = append(merged, v)
			}
		}
		return f.arrange(merged, patch, original)
	}
	original, patch, err := f.special(original, patch)
	if err != nil {
		return nil, err
	}
	server := slices.Clone(original)
	merged := original
	for _, v := range patch {
		element, _ := v.(object)
		at := indexOf(merged, element, f.key)
		if at < 0 {
			clean, _ := withoutDirectives(element)
			merged = append(merged, clean)
			continue
		}
		old, _ := merged[at].(object)
		if merged[at], err = f.mergeObject(old, element); err != nil {
			return nil, err
		}
	}
	return f.arrange(merged, patch, server)
}

// sameShape refuses lists whose elements cannot be told apart: by a key that each has, or as scalars.
func (f field) sameShape(lists ...list) error {
	for _, l := range lists {
		for _, v := range l {
			element, isObject := v.(object)
			_, isList := v.(list)
			switch {
			case f.key == "" && (isObject || isList):
				return fmt.Errorf("elements must be plain values")
			case f.key == "":
			case !isObject:
				return fmt.Errorf("elements must be objects")
			case element[f.key] == nil && element[directive] != replace:
				return fmt.Errorf("element %v does not contain the merge key %s", element, f.key)
			}
			if f.key != "" && !isKeyScalar(element[f.key]) {
				return fmt.Errorf("merge key %s must be a plain value", f.key)
			}
		}
	}
	return nil
}

func isKeyScalar(v any) bool {
	switch v.(type) {
	case object, list:
		return false
	}
	return true
}

// special obeys the elements of a patch that are directives, and returns the others.
func (f field) special(original, patch list) (list, list, error) {
	var ordinary list
	whole := false
	for _, v := range patch {
		element, _ := v.(object)
		what, ok := element[directive]
		switch {
		case !ok:
			ordinary = append(ordinary, v)
		case what == remove:
			original = slices.DeleteFunc(slices.Clone(original), func(o any) bool { return same(o, element, f.key) })
		case what == replace:
			whole = true
		default:
			return nil, nil, fmt.Errorf("%s: %v is neither %s nor %s", directive, what, replace, remove)
		}
	}
	if whole {
		clean, _ := withoutDirectives(ordinary)
		ordinary, _ = clean.(list)
		return ordinary, nil, nil
	}
	return original, ordinary, nil
}

// arrange puts a merged list in order: the elements that order names as it names them, those that only the server has as
// the server has them, and both together so that neither is turned round.
func (f field) arrange(merged, order, server list) (list, error) {
	if err := f.sameShape(merged, order); err != nil {
		return nil, err
	}
	var named, others list
	for _, v := range merged {
		if indexOf(order, v, f.key) >= 0 {
			named = append(named, v)
		} else {
			others = append(others, v)
		}
	}
	by := func(order list) func(a, b any) int {
		return func(a, b any) int { return indexOf(order, a, f.key) - indexOf(order, b, f.key) }
	}
	slices.SortStableFunc(named, by(order))
	slices.SortStableFunc(others, by(server))
	out := make(list, 0, len(merged))
	for len(named) > 0 && len(others) > 0 {
		n, o := indexOf(server, named[0], f.key), indexOf(server, others[0], f.key)
		if n >= 0 && o >= 0 && o < n {
			out, others = append(out, others[0]), others[1:]
		} else {
			out, named = append(out, named[0]), named[1:]
		}
	}
	return append(append(out, named...), others...), nil
}

// indexOf finds an element: an equal one or, where there is a key, one whose key is equal.
func indexOf(l list, element any, key string) int {
	return slices.IndexFunc(l, func(v any) bool { return same(v, element, key) })
}

func same(a, b any, key string) bool {
	if key != "" {
		x, _ := a.(object)
		y, _ := b.(object)
		if x == nil || y == nil {
			return false
		}
		a, b = x[key], y[key]
	}
	return isKeyScalar(a) && isKeyScalar(b) && a == b
}
