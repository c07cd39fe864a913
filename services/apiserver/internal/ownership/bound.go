package ownership

import (
	"fmt"
	"strings"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
)

// maxEntries bounds one map or list of an object that owners are kept of: the work on its field sets grows with the
// square of their number.
const maxEntries = 10_000

// bounded refuses an object, given with its fields, that has more entries in one place than owners can be kept of.
func bounded(k *kind.Kind, obj Object, fields map[string]any) error {
	path, n := crowded("", fields)
	if n == 0 {
		return nil
	}
	meta := obj.GetMetadata()
	return apierr.Invalid(k.Name, k.Key(meta.GetNamespace(), meta.GetName()), apierr.Violation{
		Field: path, Message: fmt.Sprintf("Too many: %d: owners are kept of at most %d items", n, maxEntries),
	})
}

// crowded finds a map or list that has more than maxEntries, and their number.
func crowded(path string, value any) (string, int) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) > maxEntries {
			return path, len(v)
		}
		for k, e := range v {
			if isLeaf(e) {
				continue
			}
			if at, n := crowded(strings.TrimPrefix(path+"."+k, "."), e); n > 0 {
				return at, n
			}
		}
	case []any:
		if len(v) > maxEntries {
			return path, len(v)
		}
		for i, e := range v {
			if isLeaf(e) {
				break // as are the others
			}
			if at, n := crowded(fmt.Sprintf("%s[%d]", path, i), e); n > 0 {
				return at, n
			}
		}
	}
	return "", 0
}

func isLeaf(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}
