package manifest

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// sink receives an object value by value, in the order in which it is printed. JSON, YAML and Go maps are its kinds.
type sink interface {
	beginObject()
	key(string)
	endObject()
	beginList()
	endList()
	text(string)
	integer(string)
	float(float64)
	boolean(bool)
	null()
}

// EncodeYAML prints an object as people keep it in files: apiVersion, kind and metadata first, then the fields as the
// kind declares them. Decode reads it back as the same object.
func EncodeYAML(k *kind.Kind, object proto.Message) ([]byte, error) {
	w := &yamlWriter{}
	if err := encodeObject(w, k.APIVersion(), k.Name, object); err != nil {
		return nil, err
	}
	return w.document(), nil
}

// EncodeJSON prints an object as EncodeYAML does, as indented JSON with a line break at the end.
func EncodeJSON(k *kind.Kind, object proto.Message) ([]byte, error) {
	w := &jsonWriter{indent: "    "}
	if err := encodeObject(w, k.APIVersion(), k.Name, object); err != nil {
		return nil, err
	}
	return append(w.out, '\n'), nil
}

// EncodeListYAML prints objects, which may be of several kinds, as one List. It fails on a message that is no kind.
func EncodeListYAML(objects []client.Object, metadata *metav1.ListMeta) ([]byte, error) {
	w := &yamlWriter{}
	if err := encodeList(w, objects, metadata); err != nil {
		return nil, err
	}
	return w.document(), nil
}

// EncodeListJSON prints a List as EncodeListYAML does, as indented JSON with a line break at the end.
func EncodeListJSON(objects []client.Object, metadata *metav1.ListMeta) ([]byte, error) {
	w := &jsonWriter{indent: "    "}
	if err := encodeList(w, objects, metadata); err != nil {
		return nil, err
	}
	return append(w.out, '\n'), nil
}

// ToJSON prints an object as compact JSON; of a message that is a kind, with its first apiVersion and its kind.
func ToJSON(object proto.Message) ([]byte, error) {
	w := &jsonWriter{}
	if err := encodeAny(w, object); err != nil {
		return nil, err
	}
	return w.out, nil
}

// ToMap gives what ToJSON prints as maps and lists: int64 for integers, float64 for other numbers.
func ToMap(object proto.Message) (map[string]any, error) {
	w := &mapBuilder{}
	if err := encodeAny(w, object); err != nil {
		return nil, err
	}
	return w.root.(map[string]any), nil
}

// Fields gives what ToMap gives without the fields that are printed though nobody set them: what whoever wrote the
// object said.
func Fields(object proto.Message) (map[string]any, error) {
	w := &mapBuilder{}
	apiVersion, name := typeOf(object)
	e := encoder{sink: w, onlySet: true}
	e.object(apiVersion, name, object)
	if e.err != nil {
		return nil, e.err
	}
	return w.root.(map[string]any), nil
}

func encodeAny(w sink, object proto.Message) error {
	apiVersion, name := typeOf(object)
	return encodeObject(w, apiVersion, name, object)
}

// typeOf returns the printed apiVersion and the kind of a message; empty where it is no kind.
func typeOf(object proto.Message) (apiVersion, name string) {
	options := kind.OptionsOf(object.ProtoReflect().Descriptor())
	if len(options.GetApiVersions()) > 0 {
		apiVersion = options.GetApiVersions()[0]
	}
	return apiVersion, options.GetKind()
}

func encodeObject(w sink, apiVersion, name string, object proto.Message) error {
	e := encoder{sink: w}
	e.object(apiVersion, name, object)
	return e.err
}

func encodeList(w sink, objects []client.Object, metadata *metav1.ListMeta) error {
	w.beginObject()
	w.key("apiVersion")
	w.text("v1")
	w.key("kind")
	w.text("List")
	w.key("metadata")
	if err := encodeObject(w, "", "", metadata); err != nil {
		return err
	}
	w.key("items")
	w.beginList()
	for i, object := range objects {
		apiVersion, name := typeOf(object)
		if name == "" {
			return fmt.Errorf("encode items[%d]: message %s is no kind", i, object.ProtoReflect().Descriptor().FullName())
		}
		if err := encodeObject(w, apiVersion, name, object); err != nil {
			return fmt.Errorf("encode items[%d]: %w", i, err)
		}
	}
	w.endList()
	w.endObject()
	return nil
}

// encoder walks messages. The first error stays; what follows it is thrown away.
type encoder struct {
	sink
	// onlySet leaves out what is printed when empty.
	onlySet bool
	err     error
}

// object prints a whole object, with apiVersion and kind where it has a kind.
func (e *encoder) object(apiVersion, name string, object proto.Message) {
	e.beginObject()
	if name != "" {
		e.key("apiVersion")
		e.text(apiVersion)
		e.key("kind")
		e.text(name)
	}
	e.fields(nil, object.ProtoReflect())
	e.endObject()
}

func (e *encoder) fail(p *path, format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf("encode %s: %s", p, fmt.Sprintf(format, args...))
	}
}

func (e *encoder) fields(p *path, m protoreflect.Message) {
	for _, f := range schemaOf(m.Descriptor()).fields {
		if m.Has(f.FieldDescriptor) {
			e.key(f.name)
			e.field(p.field(f.name), f, m.Get(f.FieldDescriptor))
		} else if f.printEmpty && f.wellKnown == "" && !e.onlySet {
			e.key(f.name)
			e.field(p.field(f.name), f, m.Get(f.FieldDescriptor))
		}
	}
}

func (e *encoder) field(p *path, f *field, value protoreflect.Value) {
	switch {
	case f.IsMap():
		e.beginObject()
		for _, key := range sortedKeys(value.Map()) {
			e.key(key.String())
			e.single(p.key(key.String()), f, f.MapValue(), value.Map().Get(key))
		}
		e.endObject()
	case f.IsList():
		e.beginList()
		for i := range value.List().Len() {
			e.single(p.item(i), f, f.FieldDescriptor, value.List().Get(i))
		}
		e.endList()
	default:
		e.single(p, f, f.FieldDescriptor, value)
	}
}

func (e *encoder) single(p *path, f *field, fd protoreflect.FieldDescriptor, value protoreflect.Value) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		e.boolean(value.Bool())
	case protoreflect.StringKind:
		e.text(value.String())
	case protoreflect.BytesKind:
		e.text(base64.StdEncoding.EncodeToString(value.Bytes()))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		e.finite(p, value.Float())
	case protoreflect.EnumKind:
		if named := fd.Enum().Values().ByNumber(value.Enum()); named != nil {
			e.text(string(named.Name()))
		} else {
			e.fail(p, "%s has no value %d", fd.Enum().Name(), value.Enum())
		}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		e.integer(strconv.FormatUint(value.Uint(), 10))
	case protoreflect.MessageKind, protoreflect.GroupKind:
		e.message(p, f, value.Message())
	default:
		e.integer(strconv.FormatInt(value.Int(), 10))
	}
}

func (e *encoder) message(p *path, f *field, m protoreflect.Message) {
	switch f.wellKnown {
	case "":
		e.beginObject()
		e.fields(p, m)
		e.endObject()
	case timestampName:
		e.timestamp(p, f, m)
	default:
		e.freeForm(p, m)
	}
}

// freeForm prints a message that holds any JSON.
func (e *encoder) freeForm(p *path, m protoreflect.Message) {
	switch known := m.Interface().(type) {
	case *structpb.Value:
		e.raw(p, known)
	case *structpb.Struct:
		e.rawObject(p, known)
	case *structpb.ListValue:
		e.rawList(p, known)
	default:
		// A kind known only at run time holds the same message without its Go type.
		generated := map[protoreflect.FullName]proto.Message{
			valueName: &structpb.Value{}, structName: &structpb.Struct{}, listValueName: &structpb.ListValue{},
		}[m.Descriptor().FullName()]
		if err := copyMessage(known, generated); err != nil {
			e.fail(p, "%v", err)
			return
		}
		e.freeForm(p, generated.ProtoReflect())
	}
}

func (e *encoder) timestamp(p *path, f *field, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	value := time.Unix(m.Get(fields.ByNumber(1)).Int(), m.Get(fields.ByNumber(2)).Int()).UTC()
	if year := value.Year(); year < 1 || year > 9999 {
		e.fail(p, "the time is not between the years 1 and 9999")
		return
	}
	if value.IsZero() {
		e.null()
		return
	}
	if f.format == metav1.Format_FORMAT_MICRO_TIME {
		e.text(value.Format("2006-01-02T15:04:05.000000Z07:00"))
		return
	}
	e.text(value.Format(time.RFC3339))
}

func (e *encoder) finite(p *path, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		e.fail(p, "%v is no number that JSON can hold", value)
		return
	}
	e.float(value)
}

func (e *encoder) raw(p *path, value *structpb.Value) {
	switch kind := value.GetKind().(type) {
	case *structpb.Value_BoolValue:
		e.boolean(kind.BoolValue)
	case *structpb.Value_NumberValue:
		e.finite(p, kind.NumberValue)
	case *structpb.Value_StringValue:
		e.text(kind.StringValue)
	case *structpb.Value_StructValue:
		e.rawObject(p, kind.StructValue)
	case *structpb.Value_ListValue:
		e.rawList(p, kind.ListValue)
	default:
		e.null()
	}
}

func (e *encoder) rawObject(p *path, object *structpb.Struct) {
	e.beginObject()
	for _, key := range slices.Sorted(maps.Keys(object.GetFields())) {
		e.key(key)
		e.raw(p.field(key), object.GetFields()[key])
	}
	e.endObject()
}

func (e *encoder) rawList(p *path, list *structpb.ListValue) {
	e.beginList()
	for i, item := range list.GetValues() {
		e.raw(p.item(i), item)
	}
	e.endList()
}

func sortedKeys(m protoreflect.Map) []protoreflect.MapKey {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	for key := range m.Range {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
