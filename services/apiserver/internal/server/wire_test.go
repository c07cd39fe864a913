package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	added    = metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED
	modified = metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED
	deleted  = metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED
)

// frames is a codec that leaves answers as they are on the wire, so that bytes can be compared.
type frames struct{}

func (frames) Name() string { return "proto" }

func (frames) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return proto.Marshal(m)
}

func (frames) Unmarshal(data []byte, v any) error {
	out, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is no frame", v)
	}
	*out = append([]byte(nil), data...)
	return nil
}

// item is an object as it came over the wire.
type item struct {
	key      string // namespace/name
	revision int64  // its resourceVersion
	bytes    []byte
}

// heard is an event as it came over the wire.
type heard struct {
	item

	typ metav1.WatchEventType
}

// answer is one message of a List or Watch.
type answer struct {
	items      []item
	events     []heard
	list       *metav1.ListMeta
	revision   int64
	more, ends bool
}

type wire struct{ stream grpc.ClientStream }

// call opens a List or Watch of a kind's service.
func call(ctx context.Context, conn *grpc.ClientConn, service, verb string, req proto.Message) (*wire, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/"+verb, grpc.ForceCodec(frames{}), grpc.WaitForReady(true))
	if err == nil {
		err = stream.SendMsg(req)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		return nil, apierr.FromStatus(err)
	}
	return &wire{stream}, nil
}

// watching reads the next message of a Watch.
func (w *wire) watching() (answer, error) {
	var frame []byte
	if err := w.stream.RecvMsg(&frame); err != nil {
		return answer{}, received(err)
	}
	var out answer
	err := fields(frame, func(number protowire.Number, b []byte, n uint64) error {
		switch number {
		case 1:
			e, err := eventOf(b)
			if err != nil {
				return err
			}
			out.events = append(out.events, e)
		case 2:
			out.revision = int64(n)
		case 3:
			out.more = n != 0
		case 4:
			out.ends = n != 0
		}
		return nil
	})
	return out, err
}

// listing reads the next message of a List.
func (w *wire) listing() (answer, error) {
	var frame []byte
	if err := w.stream.RecvMsg(&frame); err != nil {
		return answer{}, received(err)
	}
	out := answer{list: &metav1.ListMeta{}}
	err := fields(frame, func(number protowire.Number, b []byte, _ uint64) error {
		switch number {
		case 1:
			return proto.Unmarshal(b, out.list)
		case 2:
			i, err := itemOf(b)
			out.items = append(out.items, i)
			return err
		}
		return nil
	})
	return out, err
}

func received(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return apierr.FromStatus(err)
}

// listAll lists in one go. Every chunk must be of one revision and below 1 MiB, unless one object is larger.
func listAll(ctx context.Context, conn *grpc.ClientConn, service string, req *metav1.ListRequest) ([]item, *metav1.ListMeta, error) {
	w, err := call(ctx, conn, service, "List", req)
	if err != nil {
		return nil, nil, err
	}
	var items []item
	var meta *metav1.ListMeta
	for {
		chunk, err := w.listing()
		if errors.Is(err, io.EOF) {
			return items, meta, nil
		}
		if err != nil {
			return nil, nil, err
		}
		size := 0
		for _, i := range chunk.items {
			size += len(i.bytes)
		}
		switch {
		case size > 1<<20 && len(chunk.items) > 1:
			return nil, nil, fmt.Errorf("chunk of %d bytes", size)
		case meta != nil && meta.GetResourceVersion() != chunk.list.GetResourceVersion():
			return nil, nil, fmt.Errorf("chunk at %s after one at %s", chunk.list.GetResourceVersion(), meta.GetResourceVersion())
		case meta.GetContinue() != "":
			return nil, nil, errors.New("a chunk after the one with the token")
		}
		items, meta = append(items, chunk.items...), chunk.list
	}
}

func eventOf(b []byte) (heard, error) {
	var e heard
	err := fields(b, func(number protowire.Number, b []byte, n uint64) (err error) {
		switch number {
		case 1:
			e.typ = metav1.WatchEventType(n)
		case 2:
			e.item, err = itemOf(b)
		}
		return err
	})
	return e, err
}

func itemOf(b []byte) (item, error) {
	meta := &metav1.ObjectMeta{}
	err := fields(b, func(number protowire.Number, b []byte, _ uint64) error {
		if number != 1 {
			return nil
		}
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, meta)
	})
	if err != nil {
		return item{}, err
	}
	revision, err := strconv.ParseInt(meta.GetResourceVersion(), 10, 64)
	if err != nil {
		return item{}, fmt.Errorf("object %s: %w", meta.GetName(), err)
	}
	return item{key: meta.GetNamespace() + "/" + meta.GetName(), revision: revision, bytes: b}, nil
}

// fields calls fn with each field of a message: its bytes, or its number.
func fields(b []byte, fn func(number protowire.Number, b []byte, n uint64) error) error {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		m := protowire.ConsumeFieldValue(number, typ, b)
		if m < 0 {
			return protowire.ParseError(m)
		}
		var inner []byte
		var scalar uint64
		switch typ {
		case protowire.BytesType:
			inner, _ = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			scalar, _ = protowire.ConsumeVarint(b)
		}
		if err := fn(number, inner, scalar); err != nil {
			return err
		}
		b = b[m:]
	}
	return nil
}

func parseConfig(i item) (*corev1.ConfigMap, error) {
	m := &corev1.ConfigMap{}
	return m, proto.Unmarshal(i.bytes, m)
}
