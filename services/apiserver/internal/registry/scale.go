package registry

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	"trireme.dev/client/selector"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

// scaleName is the subresource of kinds that count replicas.
const scaleName = "scale"

// GetScale returns the Scale of an object.
func (r *Resource) GetScale(ctx context.Context, req *metav1.GetRequest) (Result, error) {
	obj, entry, err := r.load(ctx, req.GetNamespace(), req.GetName())
	if err != nil {
		return Result{}, err
	}
	return r.scaleResult(obj, entry.Revision)
}

// UpdateScale sets the replicas of an object. With a resource_version or uid the object must still have it.
func (r *Resource) UpdateScale(ctx context.Context, req *metav1.UpdateScaleRequest) (Result, error) {
	scale := req.GetScale()
	meta := scale.GetMetadata()
	if err := checkOptions(req.GetOptions()); err != nil {
		return Result{}, err
	}
	for try := 1; ; try++ {
		old, entry, err := r.load(ctx, meta.GetNamespace(), meta.GetName())
		if err != nil {
			return Result{}, err
		}
		if err := r.checkVersions(meta, old.GetMetadata(), entry.Revision); err != nil {
			return Result{}, err
		}
		result, err := r.setScale(ctx, old, entry, scale, req.GetOptions())
		if errors.Is(err, errMoved) {
			if try < writeTries {
				continue
			}
			return Result{}, apierr.Conflict(r.Kind.Name, r.Kind.Key(meta.GetNamespace(), meta.GetName()), "")
		}
		if err != nil {
			return Result{}, err
		}
		obj, err := r.decodePayload(result.Payload, result.Revision)
		if err != nil {
			return Result{}, err
		}
		return r.scaleResult(obj, result.Revision)
	}
}

// setScale writes the replicas of a Scale into the object that was read from entry.
func (r *Resource) setScale(ctx context.Context, old Object, entry storage.Entry, scale *metav1.Scale, opts *metav1.WriteOptions) (Result, error) {
	next, _ := proto.Clone(old).(Object)
	m := next.ProtoReflect()
	spec := m.Mutable(m.Descriptor().Fields().ByName("spec")).Message()
	replicas := spec.Descriptor().Fields().ByName("replicas")
	// A scale that says nothing asks for none, as Kubernetes reads it.
	spec.Set(replicas, protoreflect.ValueOfInt32(scale.GetSpec().GetReplicas()))
	return r.replace(ctx, old, next, entry, change{sub: Main, opts: opts, writer: r.writer(ctx, scaleName, opts)})
}

// patchScale patches the Scale of an object and writes what became of it.
func (r *Resource) patchScale(
	ctx context.Context, old Object, entry storage.Entry, apply func([]byte) ([]byte, error), opts *metav1.WriteOptions,
) (Result, error) {
	meta := old.GetMetadata()
	key := r.Kind.Key(meta.GetNamespace(), meta.GetName())
	scale, err := scaleOf(old)
	if err != nil {
		return Result{}, fmt.Errorf("scale of %s %s: %w", r.Kind.Name, key, err)
	}
	doc, err := manifest.ToJSON(scale)
	if err != nil {
		return Result{}, fmt.Errorf("scale of %s %s as JSON: %w", r.Kind.Name, key, err)
	}
	next := &metav1.Scale{}
	if err := r.patchInto(next, key, doc, apply); err != nil {
		return Result{}, err
	}
	if err := r.checkVersions(next.GetMetadata(), meta, entry.Revision); err != nil {
		return Result{}, err
	}
	return r.setScale(ctx, old, entry, next, opts)
}

func (r *Resource) scaleResult(obj Object, revision int64) (Result, error) {
	scale, err := scaleOf(obj)
	if err != nil {
		return Result{}, fmt.Errorf("scale of %s: %w", r.Kind.Name, err)
	}
	stored, err := envelope.Encode(scale)
	if err != nil {
		return Result{}, err
	}
	return Result{Payload: stored[2:], Revision: revision}, nil
}

// scaleOf reads the Scale off an object.
func scaleOf(obj Object) (*metav1.Scale, error) {
	meta := obj.GetMetadata()
	out := &metav1.Scale{
		Metadata: &metav1.ObjectMeta{
			Name: meta.GetName(), Namespace: meta.GetNamespace(), Uid: meta.GetUid(),
			ResourceVersion: meta.GetResourceVersion(), CreationTimestamp: meta.GetCreationTimestamp(),
		},
		Spec: &metav1.ScaleSpec{}, Status: &metav1.ScaleStatus{},
	}
	spec, status := part(obj, "spec"), part(obj, "status")
	replicas := int32(spec.Get(spec.Descriptor().Fields().ByName("replicas")).Int())
	out.Spec.Replicas = &replicas
	out.Status.Replicas = int32(status.Get(status.Descriptor().Fields().ByName("replicas")).Int())
	if ls, ok := spec.Get(spec.Descriptor().Fields().ByName("selector")).Message().Interface().(*metav1.LabelSelector); ok {
		s, err := selector.FromLabelSelector(ls)
		if err != nil {
			return nil, err
		}
		out.Status.Selector = s.String()
	}
	return out, nil
}

func part(obj Object, name protoreflect.Name) protoreflect.Message {
	m := obj.ProtoReflect()
	fd := m.Descriptor().Fields().ByName(name)
	if m.Has(fd) {
		return m.Get(fd).Message()
	}
	return m.NewField(fd).Message()
}

// checkScalable refuses a kind at start that says it counts replicas and does not.
func checkScalable(d protoreflect.MessageDescriptor) error {
	for _, f := range []struct {
		holder, name protoreflect.Name
		kind         protoreflect.Kind
	}{
		{"spec", "replicas", protoreflect.Int32Kind}, {"status", "replicas", protoreflect.Int32Kind},
		{"spec", "selector", protoreflect.MessageKind},
	} {
		holder := d.Fields().ByName(f.holder)
		if holder == nil || holder.Message() == nil || holder.Message().Fields().ByName(f.name) == nil ||
			holder.Message().Fields().ByName(f.name).Kind() != f.kind {
			return fmt.Errorf("a scalable kind needs %s.%s", f.holder, f.name)
		}
	}
	return nil
}
