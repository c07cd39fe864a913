package claims

import (
	"trireme.dev/client"
	"trireme.dev/client/selector"
)

// none is a lister of nothing.
type none[T client.Object] struct{}

// Get implements framework.Lister.
func (none[T]) Get(string, string) (object T, found bool) { return object, false }

// List implements framework.Lister.
func (none[T]) List(string, *selector.Labels) []T { return nil }
