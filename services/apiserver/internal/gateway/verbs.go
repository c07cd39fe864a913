package gateway

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/registry"
)

// served is what a service's verbs are asked of: a registry.Resource, or a registry.Version of one.
type served interface {
	New() registry.Object
	Get(ctx context.Context, req *metav1.GetRequest) (registry.Result, error)
	List(ctx context.Context, req *metav1.ListRequest, send registry.Send) error
	Watch(ctx context.Context, req *metav1.WatchRequest, send registry.Send) error
	Create(ctx context.Context, obj registry.Object, opts *metav1.WriteOptions) (registry.Result, error)
	Update(ctx context.Context, obj registry.Object, sub registry.Subresource, opts *metav1.WriteOptions) (registry.Result, error)
	Patch(ctx context.Context, req *metav1.PatchRequest) (registry.Result, error)
	Delete(ctx context.Context, namespace, name string, opts *metav1.DeleteOptions) (registry.Result, error)
	DeleteCollection(ctx context.Context, req *metav1.DeleteCollectionRequest) (int, error)
	Unreadable(namespace string) []string
}

// scaleVerb returns what serves the methods of kinds that count replicas.
func scaleVerb(r *registry.Resource, method string) handler {
	switch method {
	case "GetScale":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &metav1.GetRequest{}
			return answer(s, req, func() (registry.Result, error) { return r.GetScale(ctx, req) })
		}
	case "UpdateScale":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &metav1.UpdateScaleRequest{}
			return answer(s, req, func() (registry.Result, error) { return r.UpdateScale(ctx, req) })
		}
	}
	return nil
}

// verb returns what serves a method that every kind has; nil for others.
func (g *Gateway) verb(r served, method string) handler {
	switch method {
	case "Get":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &metav1.GetRequest{}
			return answer(s, req, func() (registry.Result, error) { return r.Get(ctx, req) })
		}
	case "List":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &metav1.ListRequest{}
			if err := receive(s, req); err != nil {
				return err
			}
			err := r.List(ctx, req, func(parts [][]byte) error { return s.SendMsg(frames(parts)) })
			warn(s, r.Unreadable(req.GetNamespace()))
			return err
		}
	case "Watch":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &metav1.WatchRequest{}
			if err := receive(s, req); err != nil {
				return err
			}
			// The header tells the client that the watch stands, before anything happens.
			if err := s.SendHeader(nil); err != nil {
				return err
			}
			err := r.Watch(ctx, req, func(parts [][]byte) error { return s.SendMsg(frames(parts)) })
			warn(s, r.Unreadable(req.GetNamespace()))
			return err
		}
	case "Create":
		return write(r, r.Create)
	case "Update":
		return write(r, func(ctx context.Context, obj registry.Object, opts *metav1.WriteOptions) (registry.Result, error) {
			return r.Update(ctx, obj, registry.Main, opts)
		})
	case "UpdateStatus":
		return write(r, func(ctx context.Context, obj registry.Object, opts *metav1.WriteOptions) (registry.Result, error) {
			return r.Update(ctx, obj, registry.Status, opts)
		})
	case "Patch":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &metav1.PatchRequest{}
			return answer(s, req, func() (registry.Result, error) { return r.Patch(ctx, req) })
		}
	case "Delete":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &metav1.DeleteRequest{}
			return answer(s, req, func() (registry.Result, error) {
				return r.Delete(ctx, req.GetNamespace(), req.GetName(), req.GetOptions())
			})
		}
	case "DeleteCollection":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &metav1.DeleteCollectionRequest{}
			if err := receive(s, req); err != nil {
				return err
			}
			n, err := r.DeleteCollection(ctx, req)
			if err != nil {
				return err
			}
			return sendMessage(s, &metav1.DeleteCollectionResponse{Deleted: int32(n)})
		}
	}
	return nil
}

// answer receives a request, does the call and sends the object it returns.
func answer(s grpc.ServerStream, req proto.Message, call func() (registry.Result, error)) error {
	if err := receive(s, req); err != nil {
		return err
	}
	result, err := call()
	if err != nil {
		return err
	}
	return sendResult(s, result)
}

type writer func(context.Context, registry.Object, *metav1.WriteOptions) (registry.Result, error)

// write serves the methods whose request is {object = 1; options = 2}.
func write(r served, call writer) handler {
	return func(ctx context.Context, s grpc.ServerStream) error {
		raw, err := receiveBytes(s)
		if err != nil {
			return err
		}
		obj, opts, err := parseWrite(r, raw)
		if err != nil {
			return err
		}
		result, err := call(ctx, obj, opts)
		if err != nil {
			return err
		}
		return sendResult(s, result)
	}
}

func parseWrite(r served, raw []byte) (registry.Object, *metav1.WriteOptions, error) {
	bad := func(err error) error {
		return apierr.BadRequest(fmt.Sprintf("request does not hold a %s: %v", nameOf(r), err))
	}
	obj, opts := r.New(), &metav1.WriteOptions{}
	found := false
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, nil, bad(protowire.ParseError(n))
		}
		raw = raw[n:]
		m := protowire.ConsumeFieldValue(num, typ, raw)
		if m < 0 {
			return nil, nil, bad(protowire.ParseError(m))
		}
		if typ == protowire.BytesType && (num == 1 || num == 2) {
			value, _ := protowire.ConsumeBytes(raw)
			var into proto.Message = obj
			if num == 2 {
				into = opts
			}
			// A field that is sent twice is merged, as protobuf says.
			if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(value, into); err != nil {
				return nil, nil, bad(err)
			}
			found = found || num == 1
		}
		raw = raw[m:]
	}
	if !found {
		return nil, nil, apierr.Invalid(nameOf(r), "", apierr.Violation{Field: "object", Message: "Required value"})
	}
	return obj, opts, nil
}

// nameOf is what errors call the kind.
func nameOf(r served) string { return string(r.New().ProtoReflect().Descriptor().Name()) }
