package conversion_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"trireme.dev/client/kind"
	autoscalingv2 "trireme.dev/proto/gen/trireme/autoscaling/v2"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/apiserver/internal/conversion"
)

func TestEveryVersionHasAPair(t *testing.T) {
	kinds := kind.Builtin()
	known := map[protoreflect.FullName]bool{}
	for _, p := range conversion.Table() {
		known[p.Version] = true
		k, ok := kinds.ByMessage(p.Version)
		if !ok || k.StoredAs != p.Stored {
			t.Errorf("%s is converted to %s, and stored as %s", p.Version, p.Stored, k.StoredAs)
		}
	}
	for _, k := range kinds.Served() {
		if name := k.Message.Descriptor().FullName(); k.StoredAs != "" && !known[name] {
			t.Errorf("nothing converts %s", name)
		}
	}
}

func TestEveryFormerFormHasAnUpgrade(t *testing.T) {
	kinds := kind.Builtin()
	have := map[string]bool{}
	for _, u := range conversion.Upgrades() {
		have[fmt.Sprintf("%s %d", u.Message, u.From)] = true
		if k, ok := kinds.ByMessage(u.Message); !ok || u.From >= k.StorageVersion {
			t.Errorf("%s has an upgrade from %d, and is written in %d", u.Message, u.From, k.StorageVersion)
		}
	}
	for _, k := range kinds.All() {
		for from := byte(1); from < k.StorageVersion; from++ {
			if name := fmt.Sprintf("%s %d", k.Message.Descriptor().FullName(), from); !have[name] {
				t.Errorf("nothing upgrades %s", name)
			}
		}
	}
}

// TestRoundTrips: no way there and back loses anything, whichever side it begins on.
func TestRoundTrips(t *testing.T) {
	for _, p := range conversion.Table() {
		t.Run(string(p.Version), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				stored := object(t, p.Stored)
				before := proto.Clone(stored)
				version := must(p.FromStored(stored))(t)
				same(t, "what was converted", before, stored)
				same(t, "stored → version → stored", stored, must(p.ToStored(version))(t))
				same(t, "stored → version → stored → version", version, must(p.FromStored(must(p.ToStored(version))(t)))(t))
			})
			rapid.Check(t, func(t *rapid.T) {
				version := object(t, p.Version)
				stored := must(p.ToStored(version))(t)
				same(t, "version → stored → version", version, must(p.FromStored(stored))(t))
			})
		})
	}
}

// TestAnnotationsAreNoTrap: whatever text stands under the keys of the conversion, it converts.
func TestAnnotationsAreNoTrap(t *testing.T) {
	keys := []string{
		"autoscaling.alpha.kubernetes.io/metrics", "autoscaling.alpha.kubernetes.io/current-metrics",
		"autoscaling.alpha.kubernetes.io/conditions", "autoscaling.alpha.kubernetes.io/behavior",
		"autoscaling.trireme.dev/cpu-metric-index", "scheduling.trireme.dev/spec", "scheduling.trireme.dev/status",
		"scheduling.x-k8s.io/min-resources", "scheduling.x-k8s.io/schedule-timeout-seconds", "scheduling.x-k8s.io/status",
	}
	texts := []string{
		"", "null", "{}", "[]", "[{}]", "[null]", "-1", "99", "x", `{"a":1}`, `[{"type":"Resource","resource":{"name":"cpu"}}]`,
		`[{"type":"Object","object":{}},{"external":{},"pods":{}}]`, `[{"autoscaling.trireme.dev/v2":"x"}]`, `{"ScaleUp":{"Policies":[]}}`,
	}
	rapid.Check(t, func(t *rapid.T) {
		for _, p := range conversion.Table() {
			stored, version := object(t, p.Stored), object(t, p.Version)
			for _, key := range keys {
				for _, o := range []conversion.Object{stored, version} {
					if rapid.Bool().Draw(t, key) {
						if o.GetMetadata().Annotations == nil {
							o.GetMetadata().Annotations = map[string]string{}
						}
						o.GetMetadata().Annotations[key] = rapid.SampledFrom(texts).Draw(t, "text")
					}
				}
			}
			must(p.FromStored(stored))(t)
			must(p.ToStored(version))(t)
		}
	})
}

// TestSharedMessages holds together what is copied by number between the versions of PodGroup.
func TestSharedMessages(t *testing.T) {
	for _, name := range []protoreflect.Name{
		"PodGroupSchedulingPolicy", "PodGroupSchedulingConstraints", "PodGroupResourceClaim", "PodGroupStatus",
	} {
		a := find(t, protoreflect.FullName("trireme.scheduling.v1."+name))
		b := find(t, protoreflect.FullName("trireme.scheduling.v1alpha2."+name))
		sameFields(t, a.Descriptor(), b.Descriptor())
	}
	sameFields(t, find(t, "trireme.autoscaling.v1.CrossVersionObjectReference").Descriptor(),
		find(t, "trireme.autoscaling.v2.CrossVersionObjectReference").Descriptor())
}

func sameFields(t *testing.T, a, b protoreflect.MessageDescriptor) {
	t.Helper()
	if a.Fields().Len() != b.Fields().Len() {
		t.Errorf("%s has %d fields, %s %d", a.FullName(), a.Fields().Len(), b.FullName(), b.Fields().Len())
	}
	for i := range a.Fields().Len() {
		x := a.Fields().Get(i)
		y := b.Fields().ByNumber(x.Number())
		if y == nil || x.Name() != y.Name() || x.Kind() != y.Kind() || x.Cardinality() != y.Cardinality() {
			t.Errorf("%s is not in %s", x.FullName(), b.FullName())
			continue
		}
		if x.Message() != nil && x.Message().ParentFile().Package() == a.ParentFile().Package() {
			sameFields(t, x.Message(), y.Message())
		}
	}
}

// TestUpgradeOfPodGroup: storage version 1 kept the template that v1alpha2 names in a field of its own.
func TestUpgradeOfPodGroup(t *testing.T) {
	upgrade := conversion.Upgrades()[0]
	old := &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Name: "gang", Namespace: "default", Uid: "u", Generation: 3},
		Spec:     &schedulingv1.PodGroupSpec{PriorityClassName: proto.String("high")},
	}
	want, _ := proto.Clone(old).(*schedulingv1.PodGroup)
	want.Spec.WorkloadRef = &schedulingv1.WorkloadReference{WorkloadName: "w", TemplateName: "t"}
	// spec.podGroupTemplateRef = 10 {workload = 1 {workloadName = 1 "w", podGroupTemplateName = 2 "t"}}
	old.Spec.ProtoReflect().SetUnknown([]byte("\x52\x08\x0a\x06\x0a\x01w\x12\x01t"))
	raw, err := proto.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	raw, err = upgrade.Convert(raw)
	if err != nil {
		t.Fatal(err)
	}
	got := &schedulingv1.PodGroup{}
	if err := proto.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"\xff", "\x12\x04\x52\x02\x0a\x09", "\x12\x05\x52\x03\x0a\x01\xff"} {
		if out, err := upgrade.Convert([]byte(bad)); err == nil {
			t.Errorf("%q became %q", bad, out)
		}
	}
}

// object draws one that obeys the options of its fields.
func object(t *rapid.T, name protoreflect.FullName) conversion.Object {
	mt, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		t.Fatalf("%v", err)
	}
	m := mt.New()
	draw(t, m, 0)
	obj, _ := m.Interface().(conversion.Object)
	return obj
}

// unions have exactly one of their messages; the value is the field that names it, if there is one.
var unions = map[protoreflect.FullName]protoreflect.Name{
	"trireme.autoscaling.v2.MetricSpec": "type", "trireme.autoscaling.v2.MetricStatus": "type",
	"trireme.scheduling.v1.PodGroupSchedulingPolicy": "", "trireme.scheduling.v1alpha2.PodGroupSchedulingPolicy": "",
	"trireme.scheduling.v1.DisruptionMode": "",
}

// The metric that autoscaling/v1 knows, and the condition that makes a phase: chance alone seldom hits on them.
var likely = map[protoreflect.FullName]func() proto.Message{
	"trireme.autoscaling.v2.MetricSpec": func() proto.Message {
		return &autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{
			Name: "cpu", Target: &autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: proto.Int32(80)},
		}}
	},
	"trireme.autoscaling.v2.MetricStatus": func() proto.Message {
		return &autoscalingv2.MetricStatus{Type: "Resource", Resource: &autoscalingv2.ResourceMetricStatus{
			Name: "cpu", Current: &autoscalingv2.MetricValueStatus{AverageUtilization: proto.Int32(80)},
		}}
	},
	"trireme.meta.v1.Condition": func() proto.Message {
		return &metav1.Condition{Type: "PodGroupInitiallyScheduled", Status: "True", Reason: "Scheduled"}
	},
}

func draw(t *rapid.T, m protoreflect.Message, depth int) {
	d := m.Descriptor()
	if make := likely[d.FullName()]; make != nil && rapid.Bool().Draw(t, "likely") {
		proto.Merge(m.Interface(), make())
		return
	}
	if d.FullName() == "trireme.meta.v1.ObjectMeta" {
		meta, _ := m.Interface().(*metav1.ObjectMeta)
		meta.Name, meta.Uid = rapid.SampledFrom(words).Draw(t, "name"), rapid.SampledFrom(words).Draw(t, "uid")
		meta.Annotations = rapid.MapOfN(rapid.SampledFrom([]string{"a", "example.com/b"}), rapid.SampledFrom(words), 0, 2).Draw(t, "annotations")
		return
	}
	naming, union := unions[d.FullName()]
	chosen := -1
	if union {
		var messages []int
		for i := range d.Fields().Len() {
			if d.Fields().Get(i).Message() != nil {
				messages = append(messages, i)
			}
		}
		chosen = rapid.SampledFrom(messages).Draw(t, "one of")
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
		switch {
		case union && fd.Message() != nil && i != chosen:
			continue
		case union && fd.Name() == naming:
			name := d.Fields().Get(chosen).JSONName()
			m.Set(fd, protoreflect.ValueOfString(string(name[0]-'a'+'A')+name[1:]))
			continue
		case i != chosen && !options.GetRequired() && fd.Number() != 1 && !rapid.Bool().Draw(t, string(fd.Name())):
			continue
		}
		drawField(t, m, fd, options, depth)
	}
}

var (
	words      = []string{"a", "web", "cpu", "memory", "w-1"}
	quantities = []string{"0", "1", "500m", "2Gi"}
)

func drawField(t *rapid.T, m protoreflect.Message, fd protoreflect.FieldDescriptor, options *metav1.FieldOptions, depth int) {
	switch {
	case fd.IsMap():
		for range rapid.IntRange(1, 2).Draw(t, "entries") {
			key := protoreflect.ValueOfString(rapid.SampledFrom(words).Draw(t, "key")).MapKey()
			m.Mutable(fd).Map().Set(key, scalar(t, fd.MapValue(), options))
		}
	case fd.IsList():
		list := m.Mutable(fd).List()
		for range rapid.IntRange(1, 3).Draw(t, "items") {
			if fd.Message() == nil {
				list.Append(scalar(t, fd, options))
				continue
			}
			item := list.NewElement()
			draw(t, item.Message(), depth+1)
			list.Append(item)
		}
	case fd.Message() == nil:
		m.Set(fd, scalar(t, fd, options))
	case fd.Message().FullName() == "google.protobuf.Timestamp":
		at := timestamppb.Timestamp{Seconds: rapid.Int64Range(0, 1<<32).Draw(t, "seconds"), Nanos: rapid.SampledFrom([]int32{0, 1, 999000000}).Draw(t, "nanos")}
		m.Set(fd, protoreflect.ValueOfMessage(at.ProtoReflect()))
	case depth < 8:
		draw(t, m.Mutable(fd).Message(), depth+1)
	}
}

func scalar(t *rapid.T, fd protoreflect.FieldDescriptor, options *metav1.FieldOptions) protoreflect.Value {
	low, high := int64(0), int64(100)
	if options != nil && options.Minimum != nil {
		low = options.GetMinimum()
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(rapid.Int64Range(low, high).Draw(t, "number")))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64Range(low, high).Draw(t, "number"))
	}
	from := words
	switch {
	case options.GetFormat() == metav1.Format_FORMAT_QUANTITY:
		from = quantities
	case len(options.GetAllowedValues()) > 0:
		from = slices.Clone(options.GetAllowedValues())
	}
	return protoreflect.ValueOfString(rapid.SampledFrom(from).Draw(t, "text"))
}

func must(obj conversion.Object, err error) func(*rapid.T) conversion.Object {
	return func(t *rapid.T) conversion.Object {
		if err != nil {
			t.Fatalf("%v", err)
		}
		return obj
	}
}

func same(t *rapid.T, what string, want, got proto.Message) {
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func find(t *testing.T, name protoreflect.FullName) protoreflect.MessageType {
	t.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return mt
}
