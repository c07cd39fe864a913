package schema_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/schema"
)

// The sweep breaks each rule of each field of each kind, one at a time, in an otherwise valid message, and expects one
// violation, at that field. It is made from the descriptors alone: a new kind or field is covered by being there.

// sweeper walks one kind.
type sweeper struct {
	t      *testing.T
	schema *schema.Schema
	kind   *kind.Kind
	swept  map[protoreflect.FullName]bool // messages, over all kinds
	broken int
}

func TestEveryFieldRuleIsKept(t *testing.T) {
	c := compiler(t)
	swept := map[protoreflect.FullName]bool{}
	total := 0
	for _, k := range kind.Builtin().All() {
		s, err := c.Compile(k)
		if err != nil {
			t.Fatal(err)
		}
		w := &sweeper{t: t, schema: s, kind: k, swept: swept}
		w.message(k.Message.Descriptor(), nil)
		total += w.broken
	}
	t.Logf("%d rules of %d messages broken one by one", total, len(swept))
	if total < 500 {
		t.Errorf("only %d rules were found: the sweep walks past most of them", total)
	}
}

// step is a field on the way to a message, as the sweep goes: always the first element of a list, the key "k" of a map.
type step struct{ fd protoreflect.FieldDescriptor }

func pathOf(steps []step) string {
	var b strings.Builder
	for i, s := range steps {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.fd.JSONName())
		if s.fd.IsList() {
			b.WriteString("[0]")
		} else if s.fd.IsMap() {
			b.WriteString("[k]")
		}
	}
	return b.String()
}

// message sweeps the fields of one message type, where it is first met.
func (w *sweeper) message(d protoreflect.MessageDescriptor, at []step) {
	if w.swept[d.FullName()] && len(at) > 0 {
		return
	}
	w.swept[d.FullName()] = true
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		here := append(slices.Clone(at), step{fd})
		for name, spoil := range breaks(fd) {
			w.expect(here, name, spoil)
		}
		value := fd
		if fd.IsMap() {
			value = fd.MapValue()
		}
		if value.Message() != nil && value.Message().ParentFile().Package() != "google.protobuf" {
			w.message(value.Message(), here)
		}
	}
}

// expect breaks one field and wants nothing more to be wrong with the object than was wrong without it, but that.
func (w *sweeper) expect(at []step, name string, spoil spoiler) {
	w.broken++
	build := func(spoil func(protoreflect.Message)) []apierr.Violation {
		obj := w.kind.Message.New()
		meta := &metav1.ObjectMeta{Name: "a"}
		if w.kind.Namespaced {
			meta.Namespace = "default"
		}
		obj.Set(obj.Descriptor().Fields().ByNumber(1), protoreflect.ValueOfMessage(meta.ProtoReflect()))
		m := obj
		complete(m)
		for _, s := range at[:len(at)-1] {
			m = enter(m, s.fd)
		}
		if spoil != nil {
			spoil(m)
		}
		// What options do not say, messages do not need either: defaults first, as a write does.
		w.schema.Default(obj.Interface())
		return w.schema.ValidateCreate(obj.Interface())
	}
	path := pathOf(at)
	base := strings.TrimSuffix(strings.TrimSuffix(path, "[0]"), "[k]")
	if at[len(at)-1].fd.FullName() == "trireme.core.v1.Secret.string_data" {
		base = "data" // where what it says is kept
	}
	var found, elsewhere []string
	before := texts(build(nil))
	for _, v := range build(spoil.do) {
		switch {
		case before[v.String()]:
		case !strings.HasPrefix(v.Field, base):
			elsewhere = append(elsewhere, v.String())
		case strings.HasPrefix(v.Message, spoil.says):
			found = append(found, v.String())
		}
	}
	if len(found) != 1 || len(elsewhere) > 0 && !spoil.list {
		w.t.Errorf("%s: %s broken by %s: want one new %q there, got %q, and elsewhere %q", w.kind.Name, path, name, spoil.says, found, elsewhere)
	}
}

func texts(vs []apierr.Violation) map[string]bool {
	out := map[string]bool{}
	for _, v := range vs {
		out[v.String()] = true
	}
	return out
}

// enter returns the message in a field, complete; made if it is not there.
func enter(m protoreflect.Message, fd protoreflect.FieldDescriptor) protoreflect.Message {
	var into protoreflect.Message
	switch {
	case fd.IsList():
		list := m.Mutable(fd).List()
		if list.Len() == 0 {
			list.AppendMutable()
		}
		into = list.Get(0).Message()
	case fd.IsMap():
		into = m.Mutable(fd).Map().Mutable(protoreflect.ValueOfString("k").MapKey()).Message()
	default:
		into = m.Mutable(fd).Message()
	}
	complete(into)
	return into
}

// complete sets what a message requires.
func complete(m protoreflect.Message) {
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		o, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
		if !o.GetRequired() || m.Has(fd) {
			continue
		}
		switch {
		case fd.IsList() && fd.Message() == nil:
			m.Mutable(fd).List().Append(sample(fd, o))
		case fd.IsMap() && fd.MapValue().Message() == nil:
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("k").MapKey(), sample(fd.MapValue(), o))
		case fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Value":
			m.Set(fd, protoreflect.ValueOfMessage(structpb.NewNumberValue(1).ProtoReflect()))
		case fd.Message() != nil:
			enter(m, fd)
		default:
			m.Set(fd, sample(fd, o))
		}
	}
}

// spoiler breaks a rule.
type spoiler struct {
	do   func(m protoreflect.Message)
	says string // how the violation begins
	list bool   // it makes elements of a list, which may break rules of their own
}

// breaks gives, for each rule of a field, a way to break it.
func breaks(fd protoreflect.FieldDescriptor) map[string]spoiler {
	out := map[string]spoiler{}
	o, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
	if o == nil {
		return out
	}
	put := func(v protoreflect.Value, says string) spoiler {
		return spoiler{says: says, do: func(m protoreflect.Message) {
			if fd.IsList() {
				list := m.NewField(fd).List()
				list.Append(v)
				v = protoreflect.ValueOfList(list)
			}
			m.Set(fd, v)
		}}
	}
	if fd.Kind() == protoreflect.StringKind && !fd.IsMap() {
		if len(o.GetAllowedValues()) > 0 {
			out["a value that is not allowed"] = put(protoreflect.ValueOfString("Nonsense"), "Unsupported value")
		}
		if o.MaxLength != nil {
			out["length"] = put(protoreflect.ValueOfString(strings.Repeat("a", int(o.GetMaxLength())+1)), "Too long")
		}
		if bad, ok := badText[o.GetFormat()]; ok {
			out["format"] = put(protoreflect.ValueOfString(bad), "Invalid value")
		}
	}
	if number := numberOf(fd); number != nil && !fd.IsMap() {
		if o.Minimum != nil {
			out["minimum"] = put(number(o.GetMinimum()-1), belowOf(fd, o))
		}
		if o.Maximum != nil && (fd.Kind() == protoreflect.Int64Kind || o.GetMaximum() < 1<<31-1) {
			out["maximum"] = put(number(o.GetMaximum()+1), "Invalid value: "+strconv.FormatInt(o.GetMaximum()+1, 10)+": must be "+boundOf(o))
		}
	}
	if fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Value" && !fd.IsList() && badValue[o.GetFormat()] != nil {
		out["format"] = put(protoreflect.ValueOfMessage(badValue[o.GetFormat()].ProtoReflect()), "Invalid value")
	}
	if fd.IsMap() && fd.MapValue().Kind() == protoreflect.StringKind && badText[o.GetFormat()] != "" || fd.IsMap() && o.GetFormat() == metav1.Format_FORMAT_LABELS {
		out["format of a map"] = spoiler{says: "Invalid value", do: func(m protoreflect.Message) {
			key, value := "bad key!", "v"
			if o.GetFormat() == metav1.Format_FORMAT_QUANTITY {
				key, value = "cpu", "lots"
			}
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
		}}
	}
	if fd.IsList() && o.MaxItems != nil {
		out["too many"] = spoiler{says: "Too many", list: true, do: func(m protoreflect.Message) {
			list := m.NewField(fd).List()
			for range o.GetMaxItems() + 1 {
				if fd.Message() != nil {
					complete(list.AppendMutable().Message())
				} else {
					list.Append(sample(fd, o))
				}
			}
			m.Set(fd, protoreflect.ValueOfList(list))
		}}
	}
	if keys := o.GetListMapKeys(); len(keys) > 0 {
		twice := func(m protoreflect.Message) {
			list := m.NewField(fd).List()
			for range 2 {
				element := list.AppendMutable().Message()
				complete(element)
				for _, k := range keys {
					kd := element.Descriptor().Fields().ByJSONName(k)
					ko, _ := proto.GetExtension(kd.Options(), metav1.E_Field).(*metav1.FieldOptions)
					v := sample(kd, ko)
					if v.Interface() == "a" {
						v = protoreflect.ValueOfString("twice")
					}
					element.Set(kd, v)
				}
			}
			m.Set(fd, protoreflect.ValueOfList(list))
		}
		if !o.GetKeysMayRepeat() {
			out["duplicates"] = spoiler{do: twice, says: "Duplicate value", list: true}
		}
	}
	if o.GetRequired() {
		out["absence"] = spoiler{do: func(m protoreflect.Message) { m.Clear(fd) }, says: "Required value"}
	}
	return out
}

// boundOf is how the message about a number's bounds ends.
func boundOf(o *metav1.FieldOptions) string {
	switch {
	case o.Minimum != nil && o.Maximum != nil:
		return "between " + strconv.FormatInt(o.GetMinimum(), 10)
	case o.Minimum != nil:
		return "greater than or equal to"
	}
	return "less than or equal to"
}

// belowOf is the message about a number below its minimum; a number that is required is absent where it is 0.
func belowOf(fd protoreflect.FieldDescriptor, o *metav1.FieldOptions) string {
	if o.GetRequired() && !fd.HasPresence() && o.GetMinimum() == 1 {
		return "Required value"
	}
	return "Invalid value: " + strconv.FormatInt(o.GetMinimum()-1, 10) + ": must be " + boundOf(o)
}

func numberOf(fd protoreflect.FieldDescriptor) func(int64) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.Int32Kind:
		return func(n int64) protoreflect.Value { return protoreflect.ValueOfInt32(int32(n)) }
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64
	}
	return nil
}

// sample is a value that a scalar may have.
func sample(fd protoreflect.FieldDescriptor, o *metav1.FieldOptions) protoreflect.Value {
	if number := numberOf(fd); number != nil {
		return number(max(1, o.GetMinimum()))
	}
	if fd.Kind() == protoreflect.BoolKind {
		return protoreflect.ValueOfBool(true)
	}
	for _, a := range o.GetAllowedValues() {
		if a != "" {
			return protoreflect.ValueOfString(a)
		}
	}
	text := "a"
	switch o.GetFormat() {
	case metav1.Format_FORMAT_IP:
		text = "10.0.0.1"
	case metav1.Format_FORMAT_CIDR:
		text = "10.0.0.0/24"
	case metav1.Format_FORMAT_QUANTITY:
		text = "1"
	case metav1.Format_FORMAT_ABSOLUTE_PATH:
		text = "/a"
	case metav1.Format_FORMAT_DURATION:
		text = "1s"
	}
	return protoreflect.ValueOfString(text)
}

// badText breaks each format of texts, in one way only.
var badText = map[metav1.Format]string{
	metav1.Format_FORMAT_QUANTITY:      "lots",
	metav1.Format_FORMAT_DURATION:      "soon",
	metav1.Format_FORMAT_DNS_LABEL:     "Not_A_Label",
	metav1.Format_FORMAT_DNS_SUBDOMAIN: "Not_A_Domain",
	metav1.Format_FORMAT_LABEL_KEY:     "bad key!",
	metav1.Format_FORMAT_PORT_NAME:     "Bad_Port",
	metav1.Format_FORMAT_ENV_NAME:      "A=B",
	metav1.Format_FORMAT_CONFIG_KEY:    "bad key!",
	metav1.Format_FORMAT_IP:            "nowhere",
	metav1.Format_FORMAT_CIDR:          "10.0.0.0",
	metav1.Format_FORMAT_ABSOLUTE_PATH: "a/b",
}

var badValue = map[metav1.Format]*structpb.Value{
	metav1.Format_FORMAT_INT_OR_STRING:  structpb.NewBoolValue(true),
	metav1.Format_FORMAT_INT_OR_PERCENT: structpb.NewStringValue("many"),
}

// Every format of texts has a way to be broken here, so that a new one is not passed over.
func TestSweepKnowsEveryFormat(t *testing.T) {
	others := []metav1.Format{metav1.Format_FORMAT_UNSPECIFIED, metav1.Format_FORMAT_LABELS, metav1.Format_FORMAT_MICRO_TIME, metav1.Format_FORMAT_RAW_JSON}
	for n := range metav1.Format_name {
		f := metav1.Format(n)
		if _, text := badText[f]; !text && badValue[f] == nil && !slices.Contains(others, f) {
			t.Errorf("%s is unknown to the sweep", f)
		}
	}
}

// TestEveryImmutableFieldIsKept changes each immutable field that is not in a list.
func TestEveryImmutableFieldIsKept(t *testing.T) {
	c := compiler(t)
	count := 0
	for _, k := range kind.Builtin().All() {
		s, err := c.Compile(k)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range immutables(k.Message.Descriptor(), nil, map[protoreflect.FullName]bool{}) {
			fd := at[len(at)-1].fd
			if fd.ContainingMessage().FullName() == "trireme.meta.v1.ObjectMeta" {
				continue // the registry knows objects by them
			}
			count++
			build := func(other bool) proto.Message {
				obj := k.Message.New()
				m := obj
				for _, s := range at[:len(at)-1] {
					m = enter(m, s.fd)
				}
				if other {
					differ(m, fd)
				}
				return obj.Interface()
			}
			var found []string
			for _, v := range s.ValidateUpdate(build(true), build(false)) {
				if strings.HasSuffix(v.Message, "field is immutable") {
					found = append(found, v.Field)
				}
			}
			whole := strings.TrimSuffix(strings.TrimSuffix(pathOf(at), "[0]"), "[k]")
			if !slices.Equal(found, []string{pathOf(at)}) && !slices.Equal(found, []string{whole}) {
				t.Errorf("%s: %s changed: immutable %v", k.Name, pathOf(at), found)
			}
			for _, v := range s.ValidateUpdate(build(false), build(false)) {
				if strings.HasSuffix(v.Message, "field is immutable") {
					t.Errorf("%s: %s unchanged: %s", k.Name, pathOf(at), v)
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d immutable fields were found", count)
	}
}

func immutables(d protoreflect.MessageDescriptor, at []step, seen map[protoreflect.FullName]bool) [][]step {
	if seen[d.FullName()] {
		return nil
	}
	seen[d.FullName()] = true
	var out [][]step
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		here := append(slices.Clone(at), step{fd})
		o, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
		if o.GetImmutable() {
			out = append(out, here)
			continue
		}
		if fd.Message() != nil && !fd.IsList() && !fd.IsMap() && fd.Message().ParentFile().Package() != "google.protobuf" {
			out = append(out, immutables(fd.Message(), here, seen)...)
		}
	}
	return out
}

// differ changes a field.
func differ(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	o, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
	switch {
	case m.Has(fd):
		m.Clear(fd)
	case fd.IsList() && fd.Message() != nil:
		m.Mutable(fd).List().AppendMutable()
	case fd.IsList():
		m.Mutable(fd).List().Append(sample(fd, o))
	case fd.IsMap() && fd.MapValue().Message() == nil:
		m.Mutable(fd).Map().Set(protoreflect.ValueOfString("k").MapKey(), sample(fd.MapValue(), o))
	case fd.Message() != nil:
		m.Set(fd, m.NewField(fd))
	default:
		m.Set(fd, sample(fd, o))
	}
}

// An object with a mistake in every field that can have one lists them all, up to the limit, and says how many more.
func TestAllMistakesAreListed(t *testing.T) {
	c := compiler(t)
	for _, k := range kind.Builtin().All() {
		s, err := c.Compile(k)
		if err != nil {
			t.Fatal(err)
		}
		obj := k.Message.New()
		want := map[string]bool{}
		spoilAll(obj, nil, want, 0)
		got := map[string]bool{}
		violations := s.ValidateCreate(obj.Interface())
		for _, v := range violations {
			got[v.Field] = true
		}
		if len(violations) > 200 {
			if !strings.HasPrefix(violations[200].Message, "and ") || len(violations) != 201 {
				t.Errorf("%s: %d violations, the last is %s", k.Name, len(violations), violations[len(violations)-1])
			}
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(want)) {
			if !got[path] {
				t.Errorf("%s: nothing said about %s", k.Name, path)
			}
		}
	}
}

// spoilAll gives every field with allowed values or a minimum one that is wrong.
func spoilAll(m protoreflect.Message, at []step, want map[string]bool, depth int) {
	if depth > 4 {
		return
	}
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		here := append(slices.Clone(at), step{fd})
		o, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
		number := numberOf(fd)
		switch {
		case fd.IsList() || fd.IsMap():
		case fd.Kind() == protoreflect.StringKind && len(o.GetAllowedValues()) > 0:
			m.Set(fd, protoreflect.ValueOfString("Nonsense"))
			want[pathOf(here)] = true
		case number != nil && o != nil && o.Minimum != nil:
			m.Set(fd, number(o.GetMinimum()-1))
			want[pathOf(here)] = true
		case fd.Message() != nil && fd.Message().ParentFile().Package() != "google.protobuf":
			spoilAll(m.Mutable(fd).Message(), here, want, depth+1)
		}
	}
}
