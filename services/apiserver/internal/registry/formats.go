package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/services/apiserver/internal/conversion"
	"trireme.dev/services/apiserver/internal/storage/format"
)

// DefaultEventTTL is how long events are kept where the operator says nothing.
const DefaultEventTTL = time.Hour

// formatsOf tells in which form the objects of each kind are stored.
func formatsOf(kinds *kind.Registry, eventTTL time.Duration) []format.Kind {
	var out []format.Kind
	for _, k := range kinds.All() {
		f := format.Kind{Prefix: prefixOf(k), Message: k.Message.Descriptor(), Version: k.StorageVersion}
		for _, u := range conversion.Upgrades() {
			if u.Message == k.Message.Descriptor().FullName() {
				f.Upgrades = append(f.Upgrades, u.Convert)
			}
		}
		if k.Message.Descriptor().FullName() == "trireme.core.v1.Event" {
			f.TTL = cmp.Or(eventTTL, DefaultEventTTL)
		}
		out = append(out, f)
	}
	return out
}

// Migration is how far the rewriting of what is stored in former forms is.
type Migration struct {
	// Resource that is being gone through, as metrics name it.
	Resource string
	format.Progress
}

// Migrate rewrites what is stored in former forms, of a kind by any of its names or, without one, of all, in the order of
// their keys and behind a key. It reports page by page.
func (r *Registry) Migrate(ctx context.Context, kindName, after string, report func(Migration) error) error {
	resources := slices.Clone(r.order)
	if kindName != "" {
		k, err := r.kinds.Resolve(kindName)
		if err != nil {
			return apierr.BadRequest(err.Error())
		}
		k = r.kinds.Stored(k)
		resources = slices.DeleteFunc(resources, func(res *Resource) bool { return res.Kind != k })
	}
	slices.SortFunc(resources, func(a, b *Resource) int { return cmp.Compare(a.prefix, b.prefix) })
	for _, res := range resources {
		from := ""
		switch {
		case after == "":
		case after >= res.prefix && len(after) > len(res.prefix) && after[:len(res.prefix)] == res.prefix:
			from = after
		case after > res.prefix:
			continue // done by the call that is resumed
		}
		err := r.formats.Migrate(ctx, res.prefix, from, func(p format.Progress) error {
			for key, reason := range p.Unreadable {
				_ = res.corrupt(key, reason) // for the report
			}
			return report(Migration{Resource: resourceOf(res.Kind), Progress: p})
		})
		if err != nil {
			return fmt.Errorf("%s: %w", resourceOf(res.Kind), err)
		}
	}
	return nil
}

// resourceOf is what Kubernetes calls the kind's objects in metrics: pods, deployments.apps.
func resourceOf(k *kind.Kind) string {
	if group := Group(k); group != "" {
		return k.Plural + "." + group
	}
	return k.Plural
}
