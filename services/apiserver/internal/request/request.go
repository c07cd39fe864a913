// Package request says what a call asks for: who asks, which verb, of which resource, in which namespace and by which
// name. It reads that off the method and the bytes of the request, without decoding the object in it. It decides nothing.
// In the gateway's chain, authorization, admission and audit read it.
package request

import (
	"context"
	"slices"
	"strings"

	"trireme.dev/kit/rpc"
)

// Groups and users that mean something to the gateway.
const (
	// GroupMasters may do everything.
	GroupMasters = "system:masters"
	// GroupNodes are node agents.
	GroupNodes = "system:nodes"
	// UserAnonymous is who proves nothing.
	UserAnonymous = "system:anonymous"
	// UserGateway is the gateway itself.
	UserGateway = "system:trireme-apiserver"

	userNode = "system:node:"
)

// Verbs of Kubernetes.
const (
	Get              = "get"
	List             = "list"
	Watch            = "watch"
	Create           = "create"
	Update           = "update"
	Patch            = "patch"
	Delete           = "delete"
	DeleteCollection = "deletecollection"
)

// Method is what a method asks for, whatever a request of it says. One without a Resource is known by its Path alone.
type Method struct {
	// Path is /package.Service/Method.
	Path string
	// Kind is the name of the kind; empty for methods of none.
	Kind string
	// Verb is one of Kubernetes' verbs.
	Verb string
	// Group of the API: empty for core. Version and Resource are what Kubernetes calls them.
	Group, Version, Resource string
	// Subresource, unless the request names one.
	Subresource string
	// Long says that the call has no end of its own: a watch, logs, exec.
	Long bool

	target *fields
}

// ReadOnly reports whether calls change nothing.
func (m *Method) ReadOnly() bool { return m.Verb == Get || m.Verb == List || m.Verb == Watch }

// GroupResource is pods, pods/status or deployments.apps: the way Kubernetes writes a resource in one word.
func (m *Method) GroupResource() string {
	if m.Group == "" {
		return m.Resource
	}
	return m.Resource + "." + m.Group
}

// Attributes are what a call asks for.
type Attributes struct {
	*Method
	Caller rpc.Caller
	// Subresource is the method's, or the one that the request names.
	Subresource string
	// Namespace and Name are empty where the request names none.
	Namespace, Name string
	// UserAgent is what the caller's program says of itself.
	UserAgent string
	// FieldSelector and LabelSelector of a list, a watch or a deletion of many.
	FieldSelector, LabelSelector string
}

// Manager is what the caller goes by as owner of fields where it does not say: the name of its program or, of one that goes by
// gRPC's own, that of its user. It is empty where there is no call.
func (a *Attributes) Manager() string {
	if a == nil {
		return ""
	}
	if program, _, _ := strings.Cut(a.UserAgent, "/"); program != "" && !strings.HasPrefix(program, "grpc-") {
		return program
	}
	return strings.TrimPrefix(a.Caller.User, "system:")
}

// Node returns which node the caller is the agent of. The agent of simulated nodes is all of them: name-N for each of them
// that its certificate names. Of such a one, name is the node that the question is about; where that is none of them, the
// first name is returned.
func Node(c rpc.Caller, name string) (node string, ok bool) {
	own, ok := strings.CutPrefix(c.User, userNode)
	if !ok || own == "" || !slices.Contains(c.Groups, GroupNodes) {
		return "", false
	}
	if name != own && numbered(own, name) {
		if _, found := slices.BinarySearch(c.DNSNames, name); found {
			return name, true
		}
	}
	return own, true
}

// IsNode reports whether the caller is the agent of the node of that name.
func IsNode(c rpc.Caller, name string) bool {
	node, ok := Node(c, name)
	return ok && node == name
}

// numbered reports whether name is own-N.
func numbered(own, name string) bool {
	digits, ok := strings.CutPrefix(name, own)
	if !ok || len(digits) < 2 || digits[0] != '-' {
		return false
	}
	for _, d := range digits[1:] {
		if d < '0' || d > '9' {
			return false
		}
	}
	return true
}

type key struct{}

// With returns a context of the call that asks for attributes.
func With(ctx context.Context, a *Attributes) context.Context {
	return context.WithValue(ctx, key{}, a)
}

// From returns what the call asks for that ctx belongs to; nil where it belongs to none.
func From(ctx context.Context) *Attributes {
	a, _ := ctx.Value(key{}).(*Attributes)
	return a
}

// Internal returns a context for what the gateway does by itself: it is no call of anybody's.
func Internal(ctx context.Context) context.Context { return With(ctx, &internal) }

var internal = Attributes{
	Method: &Method{Path: "internal", Verb: Create},
	Caller: rpc.Caller{User: UserGateway, Groups: []string{GroupMasters}},
}
