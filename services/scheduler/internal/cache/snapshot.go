package cache

import (
	"fmt"

	"trireme.dev/services/scheduler/framework"
)

// Snapshot is a cache as it was at one moment, for one goroutine. The zero value is an empty cluster.
type Snapshot struct {
	framework.Snapshot
	generation int64
	order      int64
	namespaces int64
	books      uint64
}

// Update brings a snapshot up to date. It takes over what has changed since its last update and nothing else.
func (c *Cache) Update(s *Snapshot) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.namespaces != c.namespacesVersion {
		s.SetNamespaces(c.namespaces)
		s.namespaces = c.namespacesVersion
	}
	if len(c.books.Queues) > 0 || s.books != c.books.changed {
		c.total()
		if s.books != c.books.changed {
			s.SetBooks(c.books.Clone())
			s.books = c.books.changed
		}
	}
	for el := c.recent.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		if e.info.Generation <= s.generation {
			break // all that follow are older
		}
		if e.info.Node == nil {
			s.Drop(e.name)
			continue
		}
		s.Put(&e.info)
	}
	s.generation = c.generation
	if s.order != c.order {
		for name := range s.Names {
			if el, ok := c.nodes[name]; !ok || el.Value.(*entry).info.Node == nil {
				s.Drop(name)
			}
		}
		s.order = c.order
	}
	s.Settle()
	if len(s.Nodes()) != c.present {
		return fmt.Errorf("snapshot: %d nodes, the cache has %d", len(s.Nodes()), c.present)
	}
	return nil
}
