package gatewaytest

import (
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func messages(k *kind.Kind, verb string) (request, response protoreflect.Message) {
	m := k.Service.Methods().ByName(protoreflect.Name(verb))
	return newMessage(m.Input()), newMessage(m.Output())
}

// newMessage returns a message of kinds that came at run time too.
func newMessage(d protoreflect.MessageDescriptor) protoreflect.Message {
	if mt, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil {
		return mt.New()
	}
	return dynamicpb.NewMessage(d)
}

func (g *Gateway) unary(k *kind.Kind, verb string, stream grpc.ServerStream) error {
	request, _ := messages(k, verb)
	if err := stream.RecvMsg(request.Interface()); err != nil {
		return err
	}
	g.mu.Lock()
	answer, err := g.answer(k, verb, request)
	g.mu.Unlock()
	if err != nil {
		return err
	}
	return stream.SendMsg(answer)
}

// answer holds g.mu.
func (g *Gateway) answer(k *kind.Kind, verb string, request protoreflect.Message) (proto.Message, error) {
	message := string(k.Message.Descriptor().FullName())
	switch r := request.Interface().(type) {
	case *metav1.GetRequest:
		return g.found(k, objectKey{message, r.GetNamespace(), r.GetName()})
	case *metav1.PatchRequest:
		return g.patch(k, objectKey{message, r.GetNamespace(), r.GetName()}, r)
	case *metav1.DeleteRequest:
		g.revision++
		last, ok := g.remove(objectKey{message, r.GetNamespace(), r.GetName()})
		if !ok {
			return nil, apierr.NotFound(k.Name, k.Key(r.GetNamespace(), r.GetName()))
		}
		g.wake()
		return last, nil
	case *metav1.DeleteCollectionRequest:
		g.revision++
		deleted := int32(0)
		for key := range g.objects {
			if key.message == message && key.namespace == r.GetNamespace() {
				g.remove(key)
				deleted++
			}
		}
		g.wake()
		return &metav1.DeleteCollectionResponse{Deleted: deleted}, nil
	}
	object := request.Get(request.Descriptor().Fields().ByNumber(1)).Message()
	return g.write(k, verb, client.AsObject(object))
}

func (g *Gateway) found(k *kind.Kind, key objectKey) (client.Object, error) {
	if o, ok := g.objects[key]; ok {
		return o, nil
	}
	return nil, apierr.NotFound(k.Name, k.Key(key.namespace, key.name))
}

// patch keeps the patch as an annotation: enough to see that it arrived whole.
func (g *Gateway) patch(k *kind.Kind, key objectKey, r *metav1.PatchRequest) (client.Object, error) {
	old, err := g.found(k, key)
	if err != nil {
		return nil, err
	}
	object, _ := proto.Clone(old).(client.Object)
	object.GetMetadata().Annotations = map[string]string{
		"type": r.GetType().String(), "patch": string(r.GetPatch()), "subresource": r.GetSubresource(),
		"manager": r.GetOptions().GetFieldManager(),
	}
	g.revision++
	stored := g.put(object)
	g.wake()
	return stored, nil
}

func (g *Gateway) write(k *kind.Kind, verb string, object client.Object) (client.Object, error) {
	meta := object.GetMetadata()
	name := k.Key(meta.GetNamespace(), meta.GetName())
	old, exists := g.objects[keyOf(object)]
	switch {
	case verb == "Create" && exists:
		return nil, apierr.AlreadyExists(k.Name, name)
	case verb != "Create" && !exists:
		return nil, apierr.NotFound(k.Name, name)
	case verb != "Create" && meta.GetResourceVersion() != "" &&
		meta.GetResourceVersion() != old.GetMetadata().GetResourceVersion():
		return nil, apierr.Conflict(k.Name, name, "")
	}
	g.revision++
	stored := g.put(object)
	g.wake()
	return stored, nil
}

func (g *Gateway) list(k *kind.Kind, stream grpc.ServerStream) error {
	request := &metav1.ListRequest{}
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	g.mu.Lock()
	revision := strconv.FormatInt(g.revision, 10)
	objects := g.snapshot(k, request.GetNamespace())
	g.mu.Unlock()
	for first := true; first || len(objects) > 0; first = false {
		_, chunk := messages(k, "List")
		fields := chunk.Descriptor().Fields()
		if first {
			chunk.Set(fields.ByNumber(1), protoreflect.ValueOfMessage((&metav1.ListMeta{ResourceVersion: revision}).ProtoReflect()))
		}
		items := chunk.Mutable(fields.ByNumber(2)).List()
		n := min(eventsPerResponse, len(objects))
		for _, o := range objects[:n] {
			items.Append(protoreflect.ValueOfMessage(o.ProtoReflect()))
		}
		objects = objects[n:]
		if err := stream.SendMsg(chunk.Interface()); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gateway) snapshot(k *kind.Kind, namespace string) []client.Object {
	var objects []client.Object
	for key, o := range g.objects {
		if key.message == string(k.Message.Descriptor().FullName()) && (namespace == "" || namespace == key.namespace) {
			objects = append(objects, o)
		}
	}
	return objects
}

func (g *Gateway) watch(k *kind.Kind, stream grpc.ServerStream) error {
	request := &metav1.WatchRequest{}
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	w := &watcher{gateway: g, kind: k, stream: stream}
	g.mu.Lock()
	cut := g.cut
	from := g.revision
	if rv := request.GetResourceVersion(); rv != "" && rv != "0" {
		n, err := strconv.ParseInt(rv, 10, 64)
		if err != nil || n < g.compacted {
			g.mu.Unlock()
			return apierr.Expired("revision " + rv + " has been compacted")
		}
		from = n
		g.mu.Unlock()
	} else {
		objects := g.snapshot(k, request.GetNamespace())
		g.mu.Unlock()
		if err := w.initial(objects, from); err != nil {
			return err
		}
	}
	for {
		g.mu.Lock()
		moved, at, compacted := g.moved, g.revision, g.compacted
		var changes []change
		for _, c := range g.log {
			if c.revision > from && c.key.message == string(k.Message.Descriptor().FullName()) &&
				(request.GetNamespace() == "" || request.GetNamespace() == c.key.namespace) {
				changes = append(changes, c)
			}
		}
		g.mu.Unlock()
		if from < compacted {
			return apierr.Expired("history has been compacted")
		}
		if err := w.changes(changes, at, at > from); err != nil {
			return err
		}
		from = at
		select {
		case <-moved:
		case <-cut:
			return apierr.Unavailable("the stream was cut")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

type watcher struct {
	gateway *Gateway
	kind    *kind.Kind
	stream  grpc.ServerStream
}

func (w *watcher) initial(objects []client.Object, revision int64) error {
	var batch []change
	for i, o := range objects {
		batch = append(batch, change{event: metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED, object: o})
		if len(batch) == eventsPerResponse {
			if err := w.send(batch, revision, true, false); err != nil {
				return err
			}
			batch = nil
			if err := w.cutAfter(i+1, i+1 < len(objects)); err != nil {
				return err
			}
		}
	}
	return w.send(batch, revision, false, true)
}

// changes sends changes revision by revision, each in responses of a few events, and then at as a bookmark.
func (w *watcher) changes(changes []change, at int64, moved bool) error {
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].revision == changes[0].revision {
			n++
		}
		whole := changes[:n]
		for sent := 0; sent < n; {
			size := min(eventsPerResponse, n-sent)
			batch := whole[sent : sent+size]
			sent += size
			if err := w.send(batch, whole[0].revision, sent < n, false); err != nil {
				return err
			}
			if err := w.cutAfter(sent, sent < n); err != nil {
				return err
			}
		}
		changes = changes[n:]
	}
	if moved {
		return w.send(nil, at, false, false)
	}
	return nil
}

func (w *watcher) cutAfter(sent int, more bool) error {
	w.gateway.mu.Lock()
	defer w.gateway.mu.Unlock()
	if limit := w.gateway.cutInside; limit > 0 && sent >= limit && more {
		return apierr.Unavailable("the stream was cut inside a revision")
	}
	return nil
}

func (w *watcher) send(batch []change, revision int64, more, initialEnd bool) error {
	_, response := messages(w.kind, "Watch")
	fields := response.Descriptor().Fields()
	list := response.Mutable(fields.ByNumber(1)).List()
	for _, c := range batch {
		event := list.NewElement()
		of := event.Message().Descriptor().Fields()
		event.Message().Set(of.ByNumber(1), protoreflect.ValueOfEnum(c.event.Number()))
		event.Message().Set(of.ByNumber(2), protoreflect.ValueOfMessage(c.object.ProtoReflect()))
		list.Append(event)
	}
	response.Set(fields.ByNumber(2), protoreflect.ValueOfInt64(revision))
	response.Set(fields.ByNumber(3), protoreflect.ValueOfBool(more))
	response.Set(fields.ByNumber(4), protoreflect.ValueOfBool(initialEnd))
	return w.stream.SendMsg(response.Interface())
}
