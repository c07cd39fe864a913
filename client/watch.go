package client

import (
	"context"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// WatchOptions say what to watch. The zero value gives everything as it is now and then every change.
type WatchOptions struct {
	// Namespace to watch; empty for all.
	Namespace string
	// LabelSelector and FieldSelector in Kubernetes' string syntax.
	LabelSelector, FieldSelector string
	// ResourceVersion after which changes are wanted; empty to begin with the present state.
	ResourceVersion string
	// AllowBookmarks asks for responses without events that only move the revision on.
	AllowBookmarks bool
}

// Watch is a running watch.
type Watch[T Object] struct {
	resource *Resource[T]
	stream   grpc.ClientStream
	cancel   context.CancelFunc
}

// Response is what one Recv returns.
type Response[T Object] struct {
	Events []Event[T]
	// Revision that the watcher has reached. A later Watch may resume from it only where More is unset.
	Revision int64
	// More says that further events of this revision follow.
	More bool
	// InitialEventsEnd says that all events up to here described the state at the beginning.
	InitialEventsEnd bool
}

// Event is one change of one object.
type Event[T Object] struct {
	Type metav1.WatchEventType
	// Object as it is now; its last state where it is gone.
	Object T
}

// Watch begins a watch; it ends with ctx or Close. Errors of the request itself come with the first Recv.
func (r *Resource[T]) Watch(ctx context.Context, options WatchOptions) (*Watch[T], error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := r.stream(ctx, "Watch", &metav1.WatchRequest{
		Namespace: options.Namespace, LabelSelector: options.LabelSelector, FieldSelector: options.FieldSelector,
		ResourceVersion: options.ResourceVersion, AllowBookmarks: options.AllowBookmarks,
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return &Watch[T]{resource: r, stream: stream, cancel: cancel}, nil
}

// Recv waits for the next response. io.EOF means that the gateway ended the watch in good order, Expired that the
// revision asked for has been compacted, Conflict that this watcher was too slow. After an error the watch is over.
func (w *Watch[T]) Recv() (*Response[T], error) {
	message, err := w.resource.methods.newResponse("Watch")
	if err != nil {
		return nil, err
	}
	if err := w.stream.RecvMsg(message.Interface()); err != nil {
		w.resource.reportWarnings(w.stream.Trailer())
		w.cancel()
		return nil, apierr.FromStatus(err)
	}
	fields := message.Descriptor().Fields()
	response := &Response[T]{
		Revision:         message.Get(fields.ByNumber(2)).Int(),
		More:             message.Get(fields.ByNumber(3)).Bool(),
		InitialEventsEnd: message.Get(fields.ByNumber(4)).Bool(),
	}
	events := message.Get(fields.ByNumber(1)).List()
	if n := events.Len(); n > 0 {
		response.Events = make([]Event[T], n)
		of := fields.ByNumber(1).Message().Fields()
		typeField, objectField := of.ByNumber(1), of.ByNumber(2)
		for i := range n {
			event := events.Get(i).Message()
			response.Events[i] = Event[T]{
				Type:   metav1.WatchEventType(event.Get(typeField).Enum()),
				Object: w.resource.adopt(event.Get(objectField).Message()),
			}
		}
	}
	return response, nil
}

// Close ends the watch; a Recv in progress returns Canceled.
func (w *Watch[T]) Close() { w.cancel() }
