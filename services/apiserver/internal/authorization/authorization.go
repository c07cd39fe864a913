// Package authorization decides whether a caller may do what a call asks for, before anything is done: by the caller's user
// and groups and the request's attributes alone. policy.go is the whole of it, as tables. It never looks at the object of a
// write: what a node may put into its objects is for admission to say. In the gateway's chain it stands between audit and
// admission.
package authorization

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"trireme.dev/client/apierr"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/request"
)

// Config of an Authorizer.
type Config struct {
	// Objects are where the pods of nodes are looked up.
	Objects *registry.Registry
	// Insecure lets those who prove nothing do everything: for a gateway that serves without TLS.
	Insecure bool
}

// Authorizer decides. It is safe for concurrent use.
type Authorizer struct {
	objects    *registry.Registry
	insecure   bool
	users      map[string]grants
	nodes      map[permission]check
	references *references
}

// permission is a verb on a resource, as pods/status.
type permission struct{ verb, resource string }

// grants are a user's permissions, and the namespaces that each holds in: all where the list is empty.
type grants map[permission][]string

// New returns an authorizer over the tables.
func New(cfg Config) (*Authorizer, error) {
	refs, err := podReferences()
	if err != nil {
		return nil, err
	}
	a := &Authorizer{
		objects: cfg.Objects, insecure: cfg.Insecure, references: refs,
		users: make(map[string]grants, len(policy)), nodes: map[permission]check{},
	}
	for user, rules := range policy {
		a.users[user] = grants{}
		for _, r := range rules {
			for p := range permissions(r.verbs, r.resources) {
				if r.namespace == "" {
					a.users[user][p] = []string{}
				} else if have, ok := a.users[user][p]; !ok || len(have) > 0 {
					a.users[user][p] = append(have, r.namespace)
				}
			}
		}
	}
	for _, r := range nodeRules {
		for p := range permissions(r.verbs, r.resources) {
			a.nodes[p] = r.check
		}
	}
	return a, nil
}

func permissions(verbs, resources string) func(yield func(permission) bool) {
	return func(yield func(permission) bool) {
		for verb := range strings.FieldsSeq(verbs) {
			for resource := range strings.FieldsSeq(resources) {
				if !yield(permission{verb, resource}) {
					return
				}
			}
		}
	}
}

// Anything reports whether the caller may do everything: then nothing of the request needs to be known.
func (a *Authorizer) Anything(user string, groups []string) bool {
	return slices.Contains(groups, request.GroupMasters) || a.insecure && user == request.UserAnonymous
}

// Authorize returns nil where the call is allowed, and otherwise says why it is not, as PERMISSION_DENIED or
// UNAUTHENTICATED.
func (a *Authorizer) Authorize(ctx context.Context, at *request.Attributes) error {
	c := at.Caller
	switch {
	case a.Anything(c.User, c.Groups):
		return nil
	case at.Resource == "":
		return a.authorizePath(at)
	}
	if _, ok := request.Node(c, ""); ok {
		return a.authorizeNode(ctx, at)
	}
	if a.users[c.User].allow(at) {
		return nil
	}
	return forbidden(at, "")
}

func (a *Authorizer) authorizePath(at *request.Attributes) error {
	service := at.Path[:strings.LastIndexByte(at.Path, '/')+1]
	for _, path := range []string{at.Path, service} {
		who, ok := open[path]
		if !ok {
			continue
		}
		_, isNode := request.Node(at.Caller, "")
		if who == everybody || who == authenticated && at.Caller.User != request.UserAnonymous || who == nodes && isNode {
			return nil
		}
	}
	return forbidden(at, "")
}

// allow reports whether a rule of the user covers the call.
func (g grants) allow(at *request.Attributes) bool {
	resource := resourceOf(at)
	if at.Resource == "*" && at.Subresource == "" && !g.in(permission{at.Verb, "secrets"}, at.Namespace) {
		return false // only reviews ask about every resource, and a Secret is one
	}
	if g.in(permission{at.Verb, resource}, at.Namespace) {
		return true
	}
	if at.Resource == "secrets" && at.Group == "" {
		return false
	}
	any := "*"
	if at.Subresource != "" {
		any = "*/" + at.Subresource
	}
	return g.in(permission{at.Verb, any}, at.Namespace)
}

func (g grants) in(p permission, namespace string) bool {
	namespaces, ok := g[p]
	return ok && (len(namespaces) == 0 || slices.Contains(namespaces, namespace))
}

// resourceOf is the resource as the tables write it.
func resourceOf(at *request.Attributes) string {
	if at.Subresource == "" {
		return at.GroupResource()
	}
	return at.GroupResource() + "/" + at.Subresource
}

// forbidden refuses in Kubernetes' words.
func forbidden(at *request.Attributes, why string) error {
	if why != "" {
		why = ": " + why
	}
	user := at.Caller.User
	if at.Resource == "" {
		return apierr.Forbidden("", "", fmt.Sprintf("forbidden: User %q cannot call %q%s", user, at.Path, why))
	}
	resource, key := at.Resource, at.Name
	if at.Subresource != "" {
		resource += "/" + at.Subresource
	}
	where := " at the cluster scope"
	if at.Namespace != "" {
		where = fmt.Sprintf(" in the namespace %q", at.Namespace)
		if key != "" {
			key = at.Namespace + "/" + key
		}
	}
	subject := at.GroupResource()
	if at.Name != "" {
		subject += fmt.Sprintf(" %q", at.Name)
	}
	return apierr.Forbidden(at.Kind, key, fmt.Sprintf("%s is forbidden: User %q cannot %s resource %q in API group %q%s%s",
		subject, user, at.Verb, resource, at.Group, where, why))
}
