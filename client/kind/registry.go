package kind

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Registry finds kinds by any of their names. It is safe for concurrent use; kinds may be added at any time.
type Registry struct {
	mu        sync.RWMutex
	all       []*Kind
	byMessage map[protoreflect.FullName]*Kind
	byService map[protoreflect.FullName]*Kind
	manifest  map[[2]string]*Kind
	byAlias   map[string][]*Kind
}

// NewRegistry returns a registry of the kinds given.
func NewRegistry(kinds ...*Kind) (*Registry, error) {
	r := &Registry{
		byMessage: map[protoreflect.FullName]*Kind{},
		byService: map[protoreflect.FullName]*Kind{},
		manifest:  map[[2]string]*Kind{},
		byAlias:   map[string][]*Kind{},
	}
	for _, k := range kinds {
		if err := r.Add(k); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Add registers a kind. It is refused where its message or one of its apiVersions is taken.
func (r *Registry) Add(k *Kind) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := k.Message.Descriptor().FullName()
	if r.byMessage[name] != nil {
		return fmt.Errorf("kind %s: message %s is registered already", k.Name, name)
	}
	for _, v := range k.APIVersions {
		if other := r.manifest[[2]string{v, k.Name}]; other != nil {
			return fmt.Errorf("kind %s of %s: %s %s is taken by %s", k.Name, name, v, k.Name, other.Message.Descriptor().FullName())
		}
	}
	r.byMessage[name], r.byService[k.ServiceName] = k, k
	for _, v := range k.APIVersions {
		r.manifest[[2]string{v, k.Name}] = k
	}
	for alias := range k.aliases() {
		r.byAlias[alias] = append(r.byAlias[alias], k)
	}
	r.all = append(r.all, k)
	slices.SortFunc(r.all, func(a, b *Kind) int {
		return strings.Compare(a.Group+"/"+a.Name+"/"+a.Version, b.Group+"/"+b.Name+"/"+b.Version)
	})
	return nil
}

// aliases are all spellings that Resolve takes for the kind, in lower case: each name alone, with the group, and with
// version and group, for Trireme's group and for those of the apiVersions. Where they leave several versions of one kind,
// Resolve takes the stored one.
func (k *Kind) aliases() map[string]bool {
	names := append([]string{k.Name, k.Plural}, k.ShortNames...)
	suffixes := []string{"", "." + k.Group, "." + k.Version + "." + k.Group}
	for _, v := range k.APIVersions {
		if group, version, ok := strings.Cut(v, "/"); ok {
			suffixes = append(suffixes, "."+group, "."+version+"."+group)
		}
	}
	aliases := map[string]bool{}
	for _, n := range names {
		for _, s := range suffixes {
			aliases[strings.ToLower(n+s)] = true
		}
	}
	return aliases
}

// ByMessage finds a kind by the full name of its message: trireme.core.v1.Pod.
func (r *Registry) ByMessage(name protoreflect.FullName) (*Kind, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.byMessage[name]
	return k, ok
}

// ByService finds a kind by the full name of its service: trireme.core.v1.PodService.
func (r *Registry) ByService(name protoreflect.FullName) (*Kind, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.byService[name]
	return k, ok
}

// ByManifest finds a kind by the apiVersion and kind of a manifest: apps/v1, Deployment.
func (r *Registry) ByManifest(apiVersion, kind string) (*Kind, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.manifest[[2]string{apiVersion, kind}]
	return k, ok
}

// Resolve finds a kind by what a person types, in any case: po, pods, Pod, deploy.apps, deployments.v1.apps. A name
// that several kinds bear is an error that lists them.
func (r *Registry) Resolve(name string) (*Kind, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	found := r.preferred(r.byAlias[strings.ToLower(name)])
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no kind is called %q", name)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, k := range found {
		names = append(names, k.Plural+"."+k.Version+"."+k.Group)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("%q may mean %s", name, strings.Join(names, " or "))
}

// preferred leaves out the versions of kinds that are in the list themselves.
func (r *Registry) preferred(found []*Kind) []*Kind {
	return slices.DeleteFunc(slices.Clone(found), func(k *Kind) bool {
		return k.StoredAs != "" && slices.Contains(found, r.byMessage[k.StoredAs])
	})
}

// Stored returns the kind that objects of k are stored as: k itself, unless it is only another version. nil where that is
// not in the registry.
func (r *Registry) Stored(k *Kind) *Kind {
	if k.StoredAs == "" {
		return k
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byMessage[k.StoredAs]
}

// Versions returns all kinds under which the objects of k are served: the stored one first, then others by version.
func (r *Registry) Versions(k *Kind) []*Kind {
	stored := r.Stored(k)
	versions := []*Kind{stored}
	for _, other := range r.Served() {
		if stored != nil && other.StoredAs == stored.Message.Descriptor().FullName() {
			versions = append(versions, other)
		}
	}
	return versions
}

// ByCategory returns the kinds that a category (all) stands for, in order of group and name.
func (r *Registry) ByCategory(category string) []*Kind {
	var kinds []*Kind
	for _, k := range r.All() {
		if slices.Contains(k.Options.GetCategories(), category) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// All returns every kind once, in the version that is stored, in order of group and name: whoever goes through all objects
// goes through these.
func (r *Registry) All() []*Kind {
	return slices.DeleteFunc(r.Served(), func(k *Kind) bool { return k.StoredAs != "" })
}

// Served returns every kind in every version, in order of group, name and version.
func (r *Registry) Served() []*Kind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.all)
}

// check holds the versions of a kind together.
func (r *Registry) check() error {
	for _, k := range r.Served() {
		stored := r.Stored(k)
		switch {
		case stored == nil:
			return fmt.Errorf("message %s is stored as %s, which is no kind", k.Message.Descriptor().FullName(), k.StoredAs)
		case stored.StoredAs != "":
			return fmt.Errorf("message %s is stored as %s, which is not stored itself", k.Message.Descriptor().FullName(), k.StoredAs)
		case k.Group != stored.Group || k.Name != stored.Name || k.Plural != stored.Plural || k.Namespaced != stored.Namespaced:
			return fmt.Errorf("message %s is stored as %s, which is another kind", k.Message.Descriptor().FullName(), k.StoredAs)
		}
	}
	return nil
}

// Builtin returns a new registry of the kinds compiled into this program. A kind that declares itself badly is a
// programming error: it panics.
func Builtin() *Registry {
	r, err := fromTypes(protoregistry.GlobalTypes, protoregistry.GlobalFiles)
	if err != nil {
		panic(err)
	}
	return r
}

func fromTypes(types *protoregistry.Types, files *protoregistry.Files) (*Registry, error) {
	r, err := NewRegistry()
	if err != nil {
		return nil, err
	}
	types.RangeMessages(func(mt protoreflect.MessageType) bool {
		if OptionsOf(mt.Descriptor()) == nil {
			return true
		}
		var k *Kind
		if k, err = New(mt, serviceIn(files, mt.Descriptor())); err == nil {
			err = r.Add(k)
		}
		return err == nil
	})
	if err == nil {
		err = r.check()
	}
	return r, err
}

// serviceIn returns nil where the files hold no service for the message.
func serviceIn(files *protoregistry.Files, d protoreflect.MessageDescriptor) protoreflect.ServiceDescriptor {
	found, err := files.FindDescriptorByName(ServiceNameOf(d))
	if err != nil {
		return nil
	}
	service, _ := found.(protoreflect.ServiceDescriptor)
	return service
}

// Of returns the kind of a compiled-in message. It panics where the message declares none: a programming error.
func Of(mt protoreflect.MessageType) *Kind {
	k, err := New(mt, serviceIn(protoregistry.GlobalFiles, mt.Descriptor()))
	if err != nil {
		panic(err)
	}
	return k
}
