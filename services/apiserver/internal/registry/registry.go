// Package registry serves every kind with the same verbs, from the kind's descriptor: it keeps identity, versions,
// generations, finalizers and the split of spec and status, and answers lists and watches in bytes that were never
// decoded. What a kind does differently stands in strategies.go and in the file named after the kind. It knows nothing
// of gRPC. In the chain it stands between admission and storage.
package registry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/kind"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/ownership"
	"trireme.dev/services/apiserver/internal/schema"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/format"
	"trireme.dev/services/apiserver/internal/storage/observed"
	"trireme.dev/services/apiserver/internal/watchcache"
)

// Prefix of all keys.
const Prefix = "/trireme/"

// Object is an object of any kind.
type Object = envelope.Object

// Admit is asked before anything is stored or deleted: it may change the object, or refuse the write with an
// *apierr.Error.
type Admit func(ctx context.Context, w Write) error

// Write is what admission is asked about.
type Write struct {
	Kind        *kind.Kind
	Operation   Operation
	Subresource Subresource
	// Object as it would be stored; nil on Delete.
	Object Object
	// Old is what is stored, not to be changed; nil on Create.
	Old Object
}

// Operation is what becomes of the object.
type Operation int

// The operations.
const (
	Create Operation = iota
	Update
	Delete
)

// Deps of a registry.
type Deps struct {
	Store  storage.Store
	Kinds  *kind.Registry
	Logger *slog.Logger
	// EventTTL is how long events are kept after they were last written; 0 for DefaultEventTTL.
	EventTTL time.Duration
}

// Registry holds a Resource for each kind.
type Registry struct {
	store     storage.Store // in the present form
	formats   *format.Store // the same
	kinds     *kind.Registry
	cache     *watchcache.Cache
	logger    *slog.Logger
	resources map[protoreflect.FullName]*Resource // by service
	order     []*Resource
	versions  []*Version
	mirrors   map[string]*mirror // by kind, for small kinds that admission asks for
	admit     Admit
	metrics   metrics
}

// Resource serves one kind.
type Resource struct {
	Kind *kind.Kind

	registry *Registry
	prefix   string // /trireme/<group>/<plural>/
	schema   *schema.Schema
	owners   *ownership.Type
	strategy strategy
	labels   labels
	fields   map[string]fieldReader

	broadcasts broadcasts
}

// New returns a registry of all kinds that have a service.
func New(deps Deps) (*Registry, error) {
	r := &Registry{
		kinds: deps.Kinds, logger: deps.Logger,
		resources: map[protoreflect.FullName]*Resource{},
		mirrors:   map[string]*mirror{},
		metrics:   newMetrics(),
		admit:     func(context.Context, Write) error { return nil },
	}
	var err error
	if r.formats, err = format.New(deps.Store, formatsOf(deps.Kinds, deps.EventTTL)); err != nil {
		return nil, err
	}
	r.store = r.formats
	var kinds []watchcache.Kind
	schemas, err := schema.NewCompiler()
	if err != nil {
		return nil, err
	}
	for _, k := range deps.Kinds.All() {
		if k.Service == nil {
			continue
		}
		res, err := newResource(r, k, shapesOf(deps.Kinds, k), schemas)
		if err != nil {
			return nil, fmt.Errorf("kind %s: %w", k, err)
		}
		r.resources[k.ServiceName] = res
		r.order = append(r.order, res)
		kinds = append(kinds, watchcache.Kind{Prefix: res.prefix, Group: Group(k), Resource: k.Plural, Indexes: res.indexes(), Lookups: res.lookups()})
	}
	if err := r.newVersions(deps.Kinds, schemas); err != nil {
		return nil, err
	}
	r.cache = watchcache.New(watchcache.Config{Store: r.store, Prefix: Prefix, Kinds: kinds, Logger: deps.Logger})
	for _, name := range []string{"Namespace", "PriorityClass"} {
		if res := r.Of(name); res != nil {
			r.mirrors[name] = newMirror(res)
		}
	}
	return r, nil
}

func newResource(r *Registry, k *kind.Kind, shapes []ownership.Version, schemas *schema.Compiler) (*Resource, error) {
	if _, ok := k.Message.New().Interface().(Object); !ok {
		return nil, fmt.Errorf("its message has no metadata of type ObjectMeta")
	}
	s, err := schemas.Compile(k)
	if err != nil {
		return nil, err
	}
	if k.Options.GetScalable() {
		if err := checkScalable(k.Message.Descriptor()); err != nil {
			return nil, err
		}
	}
	owners, err := ownership.Compile(k, shapes...)
	if err != nil {
		return nil, err
	}
	fields, err := fieldReaders(k)
	if err != nil {
		return nil, err
	}
	return &Resource{
		Kind: k, registry: r, prefix: prefixOf(k),
		schema: s, owners: owners, strategy: strategyOf(k), labels: labelsOf(k), fields: fields,
	}, nil
}

// Stored tells what the keys of each kind are, as Kubernetes names resources in metrics: pods, deployments.apps.
func Stored(kinds *kind.Registry) []observed.Kind {
	var out []observed.Kind
	for _, k := range kinds.All() {
		if k.Service != nil {
			out = append(out, observed.Kind{Prefix: prefixOf(k), Resource: resourceOf(k)})
		}
	}
	return out
}

// prefixOf is where the objects of a kind are stored.
func prefixOf(k *kind.Kind) string { return Prefix + k.Group + "/" + k.Plural + "/" }

// SetAdmission sets who is asked before writes. It must be called before any.
func (r *Registry) SetAdmission(admit Admit) { r.admit = admit }

// Run keeps the watch cache current until ctx ends. Lists and watches wait for it to begin.
func (r *Registry) Run(ctx context.Context) error { return r.cache.Run(ctx) }

// Resources returns all resources in order of group and kind.
func (r *Registry) Resources() []*Resource { return r.order }

// Of returns the resource of a built-in kind by its manifest name; nil where there is none.
func (r *Registry) Of(name string) *Resource {
	for _, res := range r.order {
		if res.Kind.Name == name {
			return res
		}
	}
	return nil
}

// New returns an empty object of the kind.
func (r *Resource) New() Object {
	obj, _ := r.Kind.Message.New().Interface().(Object) // newResource has checked it
	return obj
}

// key returns where an object is stored; ok is false for names that cannot exist.
func (r *Resource) key(namespace, name string) (key string, ok bool) {
	if name == "" || strings.Contains(name, "/") || strings.Contains(namespace, "/") {
		return "", false
	}
	if !r.Kind.Namespaced {
		return r.prefix + name, namespace == ""
	}
	return r.prefix + namespace + "/" + name, namespace != ""
}

// scope returns the prefix of the keys in a namespace; of all where it is empty.
func (r *Resource) scope(namespace string) string {
	if r.Kind.Namespaced && namespace != "" {
		return r.prefix + namespace + "/"
	}
	return r.prefix
}
