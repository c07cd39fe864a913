package registry

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/ownership"
	"trireme.dev/services/apiserver/internal/request"
)

// managerOf is the name under which a writer owns fields.
func managerOf(ctx context.Context, opts *metav1.WriteOptions) string {
	if name := opts.GetFieldManager(); name != "" {
		return name
	}
	name := request.From(ctx).Manager()
	return name[:min(len(name), ownership.MaxManager)]
}

func (r *Resource) writer(ctx context.Context, subresource string, opts *metav1.WriteOptions) ownership.Writer {
	return ownership.Writer{Manager: managerOf(ctx, opts), Subresource: subresource}
}

// own puts the owners of its fields on next, which replaces old; given is what the request says of them.
//
// Of most objects nobody keeps owners, and then this costs nothing: comparing field by field takes longer than all else
// that a write does. Owners are kept of what was created by a writer who gave its name, and of what has been applied.
func (r *Resource) own(old, next Object, given []*metav1.ManagedFieldsEntry, how change) error {
	if how.applied {
		next.GetMetadata().ManagedFields = given
		return nil
	}
	kept := old.GetMetadata().GetManagedFields()
	says := how.sub == Main && len(given) > 0 && !sameEntries(given, kept)
	if len(kept) == 0 && !says {
		return nil
	}
	if !says && r.unchanged(old, next) {
		return nil
	}
	if says {
		next.GetMetadata().ManagedFields = given
	}
	return r.owners.Update(old, next, how.writer, time.Now())
}

func sameEntries(a, b []*metav1.ManagedFieldsEntry) bool {
	return proto.Equal(&metav1.ObjectMeta{ManagedFields: a}, &metav1.ObjectMeta{ManagedFields: b})
}

// unchanged reports whether two versions of an object differ in nothing but their version.
func (r *Resource) unchanged(old, next Object) bool {
	have, meta := old.GetMetadata(), next.GetMetadata()
	saved := have.GetResourceVersion()
	have.ResourceVersion = meta.GetResourceVersion()
	defer func() { have.ResourceVersion = saved }()
	return proto.Equal(old, next)
}
