package client

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// ListOptions say what to list. The zero value lists everything as it is now.
type ListOptions struct {
	// Namespace to list; empty for all.
	Namespace string
	// LabelSelector and FieldSelector in Kubernetes' string syntax.
	LabelSelector, FieldSelector string
	// ResourceVersion and ResourceVersionMatch as Kubernetes documents.
	ResourceVersion, ResourceVersionMatch string
	// Limit is the largest page wanted; 0 for everything.
	Limit int64
	// Continue is the token of the page before.
	Continue string
}

// List is one consistent snapshot, or a page of one.
type List[T Object] struct {
	Items []T
	// ResourceVersion of the snapshot; a Watch may start from it.
	ResourceVersion string
	// Continue is the token for the next page; empty on the last.
	Continue string
	// Remaining is how many items follow this page; nil where that is not known.
	Remaining *int64
}

// List returns the objects that match.
func (r *Resource[T]) List(ctx context.Context, options ListOptions) (*List[T], error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.stream(ctx, "List", &metav1.ListRequest{
		Namespace: options.Namespace, LabelSelector: options.LabelSelector, FieldSelector: options.FieldSelector,
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch,
		Limit: options.Limit, Continue: options.Continue,
	})
	if err != nil {
		return nil, err
	}
	list := &List[T]{}
	for {
		chunk, err := r.methods.newResponse("List")
		if err != nil {
			return nil, err
		}
		if err := stream.RecvMsg(chunk.Interface()); err != nil {
			r.reportWarnings(stream.Trailer())
			if errors.Is(err, io.EOF) {
				return list, nil
			}
			return nil, apierr.FromStatus(err)
		}
		fields := chunk.Descriptor().Fields()
		if f := fields.ByNumber(1); chunk.Has(f) {
			meta, err := as[*metav1.ListMeta](chunk.Get(f).Message())
			if err != nil {
				return nil, err
			}
			list.merge(meta)
		}
		items := chunk.Get(fields.ByNumber(2)).List()
		for i := range items.Len() {
			list.Items = append(list.Items, r.adopt(items.Get(i).Message()))
		}
	}
}

// merge takes over what a chunk says of the list; chunks need not repeat it.
func (l *List[T]) merge(meta *metav1.ListMeta) {
	if rv := meta.GetResourceVersion(); rv != "" {
		l.ResourceVersion = rv
	}
	if token := meta.GetContinue(); token != "" {
		l.Continue = token
	}
	if meta.RemainingItemCount != nil {
		l.Remaining = proto.Int64(meta.GetRemainingItemCount())
	}
}
