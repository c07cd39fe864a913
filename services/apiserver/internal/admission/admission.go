// Package admission decides on writes with the object at hand, before they are validated and stored: it may complete a new
// object from what else exists, or refuse the write. plugins is all of it, in order: those that change objects come before
// those that only judge. It stores nothing itself. The registry asks it, for creations, updates and deletions, once it has
// read what is stored; in the gateway's chain it stands between authorization and registry.
package admission

import (
	"context"
	"errors"
	"fmt"

	"trireme.dev/client/apierr"
	"trireme.dev/services/apiserver/internal/authorization"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/request"
)

// Deps of admission.
type Deps struct {
	Registry   *registry.Registry
	Authorizer *authorization.Authorizer
}

// plugin is one step: a function that changes objects, one that judges them, or both.
type plugin struct {
	name string
	// handles are the writes that it is asked about.
	handles  map[event]bool
	mutate   func(ctx context.Context, w registry.Write) error
	validate func(ctx context.Context, w registry.Write) error
}

// event is a kind of write: what becomes of an object, or of its status.
type event int

const (
	creating event = iota
	updating
	updatingStatus
	deleting
	events
)

func eventOf(w registry.Write) event {
	switch {
	case w.Operation == registry.Create:
		return creating
	case w.Operation == registry.Delete:
		return deleting
	case w.Subresource == registry.Status:
		return updatingStatus
	}
	return updating
}

func on(list ...event) map[event]bool {
	out := map[event]bool{}
	for _, e := range list {
		out[e] = true
	}
	return out
}

// plugins are Kubernetes' of the same names, in its order.
func plugins(d Deps) []plugin {
	return []plugin{
		// Nothing is worth completing in a namespace that is not there: it judges with the first of those that change.
		{name: "NamespaceLifecycle", handles: on(creating, deleting), mutate: func(ctx context.Context, w registry.Write) error {
			return namespaceLifecycle(ctx, d.Registry, w)
		}},
		// An apply was allowed as a patch; only here is it known that it creates.
		{name: "CreateByApply", handles: on(creating), validate: func(ctx context.Context, w registry.Write) error {
			return createByApply(ctx, d.Authorizer, w)
		}},
		{name: "NodeRestriction", handles: on(creating, updating, updatingStatus, deleting), validate: nodeRestriction},
		{name: "Priority", handles: on(creating), mutate: func(ctx context.Context, w registry.Write) error {
			return priority(ctx, d.Registry, w)
		}},
		{name: "DefaultTolerationSeconds", handles: on(creating), mutate: defaultTolerationSeconds},
	}
}

// step is one function of a plugin.
type step struct {
	plugin string
	admit  func(ctx context.Context, w registry.Write) error
}

// New returns the chain: all changing comes before all judging.
func New(d Deps) registry.Admit { return chain(plugins(d)) }

func chain(list []plugin) registry.Admit {
	var steps [events][]step
	for e := range events {
		for _, p := range list {
			if p.handles[e] && p.mutate != nil {
				steps[e] = append(steps[e], step{p.name, p.mutate})
			}
		}
		for _, p := range list {
			if p.handles[e] && p.validate != nil {
				steps[e] = append(steps[e], step{p.name, p.validate})
			}
		}
	}
	return func(ctx context.Context, w registry.Write) error {
		if request.From(ctx) == nil {
			return apierr.Internal(errors.New("a write by nobody: it has not come through the gateway's chain"))
		}
		for _, s := range steps[eventOf(w)] {
			if err := s.admit(ctx, w); err != nil {
				return fmt.Errorf("admission %s: %w", s.plugin, err)
			}
		}
		return nil
	}
}

// createByApply asks whether the caller may create what its apply turns out to create.
func createByApply(ctx context.Context, a *authorization.Authorizer, w registry.Write) error {
	at := request.From(ctx)
	if at.Verb != request.Patch {
		return nil
	}
	method, creates := *at.Method, *at
	method.Verb, creates.Method = request.Create, &method
	creates.Name = w.Object.GetMetadata().GetName()
	return a.Authorize(ctx, &creates)
}

// forbidden refuses in Kubernetes' words.
func forbidden(w registry.Write, why string) error {
	obj := w.Object
	if obj == nil {
		obj = w.Old
	}
	key := w.Kind.Key(obj.GetMetadata().GetNamespace(), obj.GetMetadata().GetName())
	return apierr.Forbidden(w.Kind.Name, key, fmt.Sprintf("%s %q is forbidden: %s", w.Kind.Name, key, why))
}
