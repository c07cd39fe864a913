package client

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// New returns an empty object of a kind.
func New(k *kind.Kind) Object { return AsObject(k.Message.New()) }

// AsObject returns a message as an Object: the message itself where it is generated, and otherwise one that shares its
// fields. The message must be of a kind.
func AsObject(m protoreflect.Message) Object {
	if object, ok := m.Interface().(Object); ok {
		return object
	}
	d, ok := m.Interface().(*dynamicpb.Message)
	if !ok {
		panic(fmt.Sprintf("message %s is of no kind", m.Descriptor().FullName()))
	}
	object := &dynamicObject{d}
	f := object.metadataField()
	meta, err := as[*metav1.ObjectMeta](d.Get(f).Message())
	if err != nil {
		// Bytes of the same message by another descriptor: this can fail only where the two schemas disagree.
		panic(fmt.Sprintf("metadata of %s: %v", m.Descriptor().FullName(), err))
	}
	d.Set(f, protoreflect.ValueOfMessage(meta.ProtoReflect()))
	return object
}

// dynamicObject is an object without generated code. Its metadata is always held as a generated ObjectMeta, which is
// why it stands in for the dynamic message in reflection too: clones and decoded objects keep that property.
type dynamicObject struct{ *dynamicpb.Message }

type dynamicType struct{ protoreflect.MessageType }

func (t dynamicType) New() protoreflect.Message {
	object := &dynamicObject{dynamicpb.NewMessage(t.Descriptor())}
	object.Reset()
	return object
}

func (d *dynamicObject) metadataField() protoreflect.FieldDescriptor {
	return d.Descriptor().Fields().ByNumber(1)
}

// NewField implements protoreflect.Message.
func (d *dynamicObject) NewField(f protoreflect.FieldDescriptor) protoreflect.Value {
	if f.FullName() == d.metadataField().FullName() {
		return protoreflect.ValueOfMessage((&metav1.ObjectMeta{}).ProtoReflect())
	}
	return d.Message.NewField(f)
}

// Mutable implements protoreflect.Message.
func (d *dynamicObject) Mutable(f protoreflect.FieldDescriptor) protoreflect.Value {
	if f.FullName() == d.metadataField().FullName() && !d.Has(f) {
		d.Set(f, d.NewField(f))
	}
	return d.Message.Mutable(f)
}

// GetMetadata implements Object.
func (d *dynamicObject) GetMetadata() *metav1.ObjectMeta {
	meta, _ := d.Get(d.metadataField()).Message().Interface().(*metav1.ObjectMeta)
	return meta
}

// Reset implements what proto.Unmarshal calls first.
func (d *dynamicObject) Reset() {
	d.Message.Reset()
	d.Set(d.metadataField(), protoreflect.ValueOfMessage((&metav1.ObjectMeta{}).ProtoReflect()))
}

// ProtoReflect implements proto.Message.
func (d *dynamicObject) ProtoReflect() protoreflect.Message { return d }

// Interface implements protoreflect.Message.
func (d *dynamicObject) Interface() protoreflect.ProtoMessage { return d }

// Type implements protoreflect.Message.
func (d *dynamicObject) Type() protoreflect.MessageType { return dynamicType{d.Message.Type()} }

// New implements protoreflect.Message.
func (d *dynamicObject) New() protoreflect.Message { return d.Type().New() }

// newMessage returns a generated message where the program has it.
func newMessage(d protoreflect.MessageDescriptor) protoreflect.Message {
	if mt, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil {
		return mt.New()
	}
	return dynamicpb.NewMessage(d)
}

// as returns a message as its generated type, by way of bytes where it is a dynamic one.
func as[M proto.Message](m protoreflect.Message) (M, error) {
	if generated, ok := m.Interface().(M); ok {
		return generated, nil
	}
	var zero M
	generated, _ := zero.ProtoReflect().New().Interface().(M)
	bytes, err := proto.Marshal(m.Interface())
	if err != nil {
		return zero, fmt.Errorf("encode %s: %w", m.Descriptor().FullName(), err)
	}
	if err := proto.Unmarshal(bytes, generated); err != nil {
		return zero, fmt.Errorf("decode %s: %w", m.Descriptor().FullName(), err)
	}
	return generated, nil
}
