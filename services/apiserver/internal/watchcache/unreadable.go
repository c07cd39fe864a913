package watchcache

import (
	"maps"
	"strings"

	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

// What is stored under a kind's keys and is no object counts as absent: lists and watches go on without it, and an object
// whose bytes are spoilt is seen deleted, in its last good state. The cache remembers the keys, to be told to readers.

// sift returns a value unless it is no object, and nil then. t.mu is held.
func (t *topic) sift(key string, value []byte) []byte {
	if value != nil {
		if _, err := envelope.Open(value); err != nil {
			if t.unreadable == nil {
				t.unreadable = map[string]error{}
			}
			t.unreadable[key] = err
			return nil
		}
	}
	delete(t.unreadable, key)
	return value
}

// Unreadable returns the values of a kind that are no objects, by key, and why, as far as the cache has come.
func (c *Cache) Unreadable(prefix string) map[string]error {
	t := c.topics[storage.KindPrefix(prefix)]
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.unreadable) == 0 {
		return nil
	}
	found := maps.Clone(t.unreadable)
	maps.DeleteFunc(found, func(key string, _ error) bool { return !strings.HasPrefix(key, prefix) })
	return found
}

// readable is sift for history, which nobody is told about.
func readable(value []byte) []byte {
	if _, err := envelope.Open(value); err != nil {
		return nil
	}
	return value
}
