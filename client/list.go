package client

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

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

// List returns the objects that match. Chunks of a large list are decoded side by side.
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
	var chunks []*chunk[T]
	var decoding sync.WaitGroup
	defer decoding.Wait()
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for {
		var raw rawMessage
		if err := stream.RecvMsg(&raw); err != nil {
			r.reportWarnings(stream.Trailer())
			if errors.Is(err, io.EOF) {
				break
			}
			return nil, apierr.FromStatus(err)
		}
		c := &chunk[T]{}
		chunks = append(chunks, c)
		room <- struct{}{}
		decoding.Go(func() {
			defer func() { <-room }()
			c.err = c.decode(r, raw)
		})
	}
	decoding.Wait()
	list := &List[T]{}
	n := 0
	for _, c := range chunks {
		n += len(c.items)
	}
	list.Items = make([]T, 0, n)
	for _, c := range chunks {
		if c.err != nil {
			return nil, c.err
		}
		list.Items = append(list.Items, c.items...)
		if c.meta != nil {
			list.merge(c.meta)
		}
	}
	return list, nil
}

// chunk is one message of a list.
type chunk[T Object] struct {
	items []T
	meta  *metav1.ListMeta
	err   error
}

func (c *chunk[T]) decode(r *Resource[T], raw rawMessage) error {
	defer raw.Free()
	message, err := r.methods.newResponse("List")
	if err != nil {
		return err
	}
	if err := unmarshal(raw.ReadOnlyData(), message.Interface()); err != nil {
		return &apierr.Error{Reason: apierr.ReasonInternal, Kind: r.kind.Name, Message: "the list does not decode", Err: err}
	}
	fields := message.Descriptor().Fields()
	if f := fields.ByNumber(1); message.Has(f) {
		if c.meta, err = as[*metav1.ListMeta](message.Get(f).Message()); err != nil {
			return err
		}
	}
	items := message.Get(fields.ByNumber(2)).List()
	c.items = make([]T, items.Len())
	for i := range c.items {
		c.items[i] = r.adopt(items.Get(i).Message())
	}
	return nil
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
