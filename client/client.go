// Package client is the one way to talk to the gateway about objects: the verbs that every kind has, typed.
//
//	pods := client.For[*corev1.Pod](conn)
//	pod, err := pods.Get(ctx, "default", "web-1")
//
// Nothing here is generated per kind: requests and responses are found through the descriptors of the kind's service.
// It never caches (client/informer does) and never retries. What only some kinds have (Bind, Logs, Exec) goes through
// the generated clients, whose errors apierr.FromStatus reads.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Object is what the gateway stores: a message with metadata.
type Object interface {
	proto.Message
	GetMetadata() *metav1.ObjectMeta
}

// WarningKey is the trailer in which the gateway sends warnings, one value each.
const WarningKey = "trireme-warning-bin"

// Resource is a client of one kind's verbs. It is immutable and safe for concurrent use. Its errors are *apierr.Error.
type Resource[T Object] struct {
	conn    grpc.ClientConnInterface
	kind    *kind.Kind
	methods methods
	create  func() T
	adopt   func(protoreflect.Message) T
	options *metav1.WriteOptions
	warn    func(string)
}

// For returns the client of the kind that T, a generated message, declares. A T that declares none is a programming
// error: it panics.
func For[T Object](conn grpc.ClientConnInterface) *Resource[T] {
	var zero T
	if any(zero) == nil {
		panic("client.For needs a generated message, not an interface: use client.Dynamic")
	}
	k := kind.Of(zero.ProtoReflect().Type())
	adopt := func(m protoreflect.Message) T {
		object, _ := m.Interface().(T)
		return object
	}
	return &Resource[T]{
		conn: conn, kind: k, methods: methodsOf(k), adopt: adopt,
		create: func() T { return adopt(k.Message.New()) },
	}
}

// Dynamic returns a client of a kind known at run time only. Its objects are generated messages where the program has
// them, and otherwise messages made from the descriptor.
func Dynamic(conn grpc.ClientConnInterface, k *kind.Kind) *Resource[Object] {
	return &Resource[Object]{
		conn: conn, kind: k, methods: methodsOf(k), adopt: AsObject,
		create: func() Object { return New(k) },
	}
}

// Kind that the client is for.
func (r *Resource[T]) Kind() *kind.Kind { return r.kind }

// With returns a client whose writes carry the options.
func (r *Resource[T]) With(options *metav1.WriteOptions) *Resource[T] {
	c := *r
	c.options = options
	return &c
}

// OnWarning returns a client that hands each warning of the gateway to warn, in the caller's goroutine.
func (r *Resource[T]) OnWarning(warn func(string)) *Resource[T] {
	c := *r
	c.warn = warn
	return &c
}

// Get returns the object as it is now.
func (r *Resource[T]) Get(ctx context.Context, namespace, name string) (T, error) {
	return r.object(ctx, "Get", &metav1.GetRequest{Namespace: namespace, Name: name})
}

// Create stores a new object and returns it as stored.
func (r *Resource[T]) Create(ctx context.Context, object T) (T, error) {
	return r.write(ctx, "Create", object)
}

// Update replaces all of an object but its status and returns it as stored. With a resourceVersion it fails with
// Conflict where the object has moved on.
func (r *Resource[T]) Update(ctx context.Context, object T) (T, error) {
	return r.write(ctx, "Update", object)
}

// UpdateStatus replaces an object's status only and returns the object as stored.
func (r *Resource[T]) UpdateStatus(ctx context.Context, object T) (T, error) {
	return r.write(ctx, "UpdateStatus", object)
}

// Patch changes part of an object and returns it as stored. subresource is empty or "status".
func (r *Resource[T]) Patch(
	ctx context.Context, namespace, name string, patchType metav1.PatchType, patch []byte, subresource string,
) (T, error) {
	return r.object(ctx, "Patch", &metav1.PatchRequest{
		Namespace: namespace, Name: name, Type: patchType, Patch: patch, Subresource: subresource, Options: r.options,
	})
}

// Delete deletes an object or begins its graceful deletion, and returns its last state. options may be nil.
func (r *Resource[T]) Delete(ctx context.Context, namespace, name string, options *metav1.DeleteOptions) (T, error) {
	return r.object(ctx, "Delete", &metav1.DeleteRequest{Namespace: namespace, Name: name, Options: options})
}

// DeleteCollection deletes all objects that match and returns how many are gone or on their way.
func (r *Resource[T]) DeleteCollection(ctx context.Context, request *metav1.DeleteCollectionRequest) (int, error) {
	response := &metav1.DeleteCollectionResponse{}
	if err := r.invoke(ctx, "DeleteCollection", request, response); err != nil {
		return 0, err
	}
	return int(response.GetDeleted()), nil
}

func (r *Resource[T]) write(ctx context.Context, verb string, object T) (T, error) {
	request, err := r.methods.newRequest(verb)
	if err != nil {
		var zero T
		return zero, err
	}
	fields := request.Descriptor().Fields()
	request.Set(fields.ByNumber(1), protoreflect.ValueOfMessage(object.ProtoReflect()))
	if r.options != nil {
		request.Set(fields.ByNumber(2), protoreflect.ValueOfMessage(r.options.ProtoReflect()))
	}
	return r.object(ctx, verb, request.Interface())
}

func (r *Resource[T]) object(ctx context.Context, verb string, request proto.Message) (T, error) {
	object := r.create()
	if err := r.invoke(ctx, verb, request, object); err != nil {
		var zero T
		return zero, err
	}
	return object, nil
}

func (r *Resource[T]) invoke(ctx context.Context, verb string, request, response proto.Message) error {
	path, err := r.methods.path(verb)
	if err != nil {
		return err
	}
	var trailer metadata.MD
	err = r.conn.Invoke(ctx, path, request, response, grpc.Trailer(&trailer), grpc.ForceCodecV2(newCodec()))
	r.reportWarnings(trailer)
	return apierr.FromStatus(err)
}

func (r *Resource[T]) reportWarnings(trailer metadata.MD) {
	if r.warn == nil {
		return
	}
	for _, w := range trailer.Get(WarningKey) {
		r.warn(w)
	}
}

// stream begins a server-streaming verb. It ends with ctx.
func (r *Resource[T]) stream(ctx context.Context, verb string, request proto.Message) (grpc.ClientStream, error) {
	path, err := r.methods.path(verb)
	if err != nil {
		return nil, err
	}
	s, err := r.conn.NewStream(ctx, &grpc.StreamDesc{StreamName: verb, ServerStreams: true}, path, grpc.ForceCodecV2(newCodec()))
	if err != nil {
		return nil, apierr.FromStatus(err)
	}
	// EOF from a send means that the stream has failed; the reason comes with the first receive.
	if err := s.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, apierr.FromStatus(err)
	}
	if err := s.CloseSend(); err != nil {
		return nil, apierr.FromStatus(err)
	}
	return s, nil
}

// methods are the verbs of a kind's service.
type methods struct {
	kind *kind.Kind
}

func methodsOf(k *kind.Kind) methods { return methods{k} }

func (m methods) find(verb string) (protoreflect.MethodDescriptor, error) {
	if m.kind.Service != nil {
		if d := m.kind.Service.Methods().ByName(protoreflect.Name(verb)); d != nil {
			return d, nil
		}
	}
	return nil, apierr.Unimplemented(fmt.Sprintf("%s has no verb %s", m.kind, verb))
}

func (m methods) path(verb string) (string, error) {
	if _, err := m.find(verb); err != nil {
		return "", err
	}
	return "/" + string(m.kind.ServiceName) + "/" + verb, nil
}

func (m methods) newRequest(verb string) (protoreflect.Message, error) {
	d, err := m.find(verb)
	if err != nil {
		return nil, err
	}
	return newMessage(d.Input()), nil
}

func (m methods) newResponse(verb string) (protoreflect.Message, error) {
	d, err := m.find(verb)
	if err != nil {
		return nil, err
	}
	return newMessage(d.Output()), nil
}
