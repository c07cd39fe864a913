package registry

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/conversion"
	"trireme.dev/services/apiserver/internal/ownership"
	"trireme.dev/services/apiserver/internal/schema"
)

// Version serves the objects of a Resource in another version: under the same keys, with the same identity and resource
// versions, by the other version's defaults and rules. What it is given it converts and hands on, what it gets it converts
// back; it keeps nothing itself.
type Version struct {
	Kind *kind.Kind

	stored *Resource
	pair   conversion.Pair
	// self has what the version alone decides: its schema, and the reading of requests. It never stores.
	self *Resource
	seen memo
}

// Versions returns the versions other than the stored ones, in order of group, kind and version.
func (r *Registry) Versions() []*Version { return r.versions }

// newVersions makes those of all kinds whose stored version is served.
func (r *Registry) newVersions(kinds *kind.Registry, schemas *schema.Compiler) error {
	for _, k := range kinds.Served() {
		if k.StoredAs == "" || k.Service == nil {
			continue
		}
		v := &Version{Kind: k}
		for _, res := range r.order {
			if res.Kind.Message.Descriptor().FullName() == k.StoredAs {
				v.stored = res
			}
		}
		var ok bool
		if v.pair, ok = conversion.Find(k.Message.Descriptor().FullName()); !ok || v.stored == nil {
			return fmt.Errorf("kind %s %s: nothing converts it to %s", k, k.Version, k.StoredAs)
		}
		s, err := schemas.Compile(k)
		if err != nil {
			return fmt.Errorf("kind %s %s: %w", k, k.Version, err)
		}
		v.self = &Resource{Kind: k, registry: r, prefix: v.stored.prefix, schema: s}
		r.versions = append(r.versions, v)
	}
	return nil
}

// shapesOf tells ownership about the versions of a kind.
func shapesOf(kinds *kind.Registry, k *kind.Kind) []ownership.Version {
	var out []ownership.Version
	for _, v := range kinds.Versions(k) {
		if pair, ok := conversion.Find(v.Message.Descriptor().FullName()); ok {
			out = append(out, ownership.Version{
				Kind:       v,
				ToStored:   func(o ownership.Object) (ownership.Object, error) { return pair.ToStored(o) },
				FromStored: func(o ownership.Object) (ownership.Object, error) { return pair.FromStored(o) },
			})
		}
	}
	return out
}

// New returns an empty object of the version.
func (v *Version) New() Object { return v.self.New() }

func (v *Version) toStored(obj Object) (Object, error) {
	out, err := v.pair.ToStored(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s to %s: %w", v.Kind.Name, v.Kind.Version, v.stored.Kind.Version, err)
	}
	return out, nil
}

func (v *Version) fromStored(obj Object) (Object, error) {
	out, err := v.pair.FromStored(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s to %s: %w", v.Kind.Name, v.stored.Kind.Version, v.Kind.Version, err)
	}
	return out, nil
}

// result converts what the stored version answered.
func (v *Version) result(r Result, err error) (Result, error) {
	if err != nil {
		return Result{}, err
	}
	if r.Payload, err = v.seen.get(r.Payload, v.convert); err != nil {
		return Result{}, err
	}
	return r, nil
}

// convert turns the bytes of an object of the stored version into those of one of this version.
func (v *Version) convert(payload []byte) ([]byte, error) {
	stored := v.stored.New()
	if err := proto.Unmarshal(payload, stored); err != nil {
		return nil, fmt.Errorf("convert %s: %w", v.Kind.Name, err)
	}
	obj, err := v.fromStored(stored)
	if err != nil {
		return nil, err
	}
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s: %w", v.Kind.Name, err)
	}
	return out, nil
}

// Get is Resource.Get.
func (v *Version) Get(ctx context.Context, req *metav1.GetRequest) (Result, error) {
	return v.result(v.stored.Get(ctx, req))
}

// List is Resource.List.
func (v *Version) List(ctx context.Context, req *metav1.ListRequest, send Send) error {
	return v.stored.List(ctx, req, v.converted(send, v.convertList))
}

// Watch is Resource.Watch.
func (v *Version) Watch(ctx context.Context, req *metav1.WatchRequest, send Send) error {
	return v.stored.Watch(ctx, req, v.converted(send, v.convertWatch))
}

// Delete is Resource.Delete.
func (v *Version) Delete(ctx context.Context, namespace, name string, opts *metav1.DeleteOptions) (Result, error) {
	return v.result(v.stored.Delete(ctx, namespace, name, opts))
}

// DeleteCollection is Resource.DeleteCollection.
func (v *Version) DeleteCollection(ctx context.Context, req *metav1.DeleteCollectionRequest) (int, error) {
	return v.stored.DeleteCollection(ctx, req)
}
