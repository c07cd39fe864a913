// Package describe writes all there is to say about one object for a person: what it is, what state it is in and why,
// and what happened to it.
//
// It is pure: what it writes about is given to it. The generic form works for every kind from its descriptor; pods,
// nodes and what has a pod template have forms of their own.
package describe

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	"trireme.dev/cmd/trireme/internal/cli/table"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Subject is an object with what belongs to its description.
type Subject struct {
	Kind   *kind.Kind
	Object client.Object
	// Events about the object.
	Events []*corev1.Event
	// Pods on a node.
	Pods []*corev1.Pod
	// ReplicaSets of a Deployment.
	ReplicaSets []*appsv1.ReplicaSet
	// Now is the time that ages are counted to.
	Now time.Time
}

// Write describes the subject.
func Write(w io.Writer, s *Subject) error {
	p := &page{w: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0), now: s.Now}
	switch o := s.Object.(type) {
	case *corev1.Pod:
		p.pod(o)
	case *corev1.Node:
		p.node(o, s.Pods)
	case *appsv1.Deployment:
		p.deployment(o, s.ReplicaSets)
	case *appsv1.ReplicaSet:
		p.replicaSet(o)
	case *corev1.Secret:
		p.secret(o)
	case *corev1.ConfigMap:
		p.configMap(o)
	default:
		if err := p.generic(s); err != nil {
			return err
		}
	}
	if s.Kind.Name != "Event" {
		p.events(s.Events)
	}
	return p.w.Flush()
}

// page is the text being written. Its errors are those of Flush.
type page struct {
	w    *tabwriter.Writer
	now  time.Time
	base int // added to the level of every line
}

// line writes one indented line; tabs in it align with those of the lines around.
func (p *page) line(level int, format string, args ...any) {
	fmt.Fprintf(p.w, strings.Repeat("  ", p.base+level)+format+"\n", args...)
}

// section begins a part of its own: its lines are not aligned with those above.
func (p *page) section(level int, title string) {
	_ = p.w.Flush() // a failed write fails the last Flush too
	p.line(level, "%s", title)
}

func (p *page) since(t time.Time) string { return table.Since(p.now, t) }

func stamp(t interface{ AsTime() time.Time }) string {
	return t.AsTime().Format(time.RFC1123Z)
}

// head writes what every object has.
func (p *page) head(meta *metav1.ObjectMeta) {
	p.line(0, "Name:\t%s", meta.GetName())
	if meta.GetNamespace() != "" {
		p.line(0, "Namespace:\t%s", meta.GetNamespace())
	}
}

// lastApplied is where kubectl keeps the manifest that it applied: too long to read.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (p *page) labels(meta *metav1.ObjectMeta) {
	p.pairs(0, "Labels", meta.GetLabels())
	annotations := maps.Clone(meta.GetAnnotations())
	delete(annotations, lastApplied)
	p.pairs(0, "Annotations", annotations)
}

func (p *page) created(meta *metav1.ObjectMeta) {
	if meta.GetCreationTimestamp() != nil {
		p.line(0, "Created:\t%s (%s ago)", stamp(meta.GetCreationTimestamp()), p.since(meta.GetCreationTimestamp().AsTime()))
	}
	if meta.GetDeletionTimestamp() != nil {
		p.line(0, "Being deleted:\tgone by %s", stamp(meta.GetDeletionTimestamp()))
	}
	if len(meta.GetFinalizers()) > 0 {
		p.line(0, "Finalizers:\t%s", strings.Join(meta.GetFinalizers(), ", "))
	}
	for _, owner := range meta.GetOwnerReferences() {
		if owner.GetController() {
			p.line(0, "Controlled By:\t%s/%s", owner.GetKind(), owner.GetName())
		}
	}
}

// pairs writes a map, one entry a line behind the title.
func (p *page) pairs(level int, title string, m map[string]string) {
	if len(m) == 0 {
		p.line(level, "%s:\t<none>", title)
		return
	}
	for i, key := range slices.Sorted(maps.Keys(m)) {
		lead := ""
		if i == 0 {
			lead = title + ":"
		}
		p.line(level, "%s\t%s=%s", lead, key, firstLine(m[key]))
	}
}

// firstLine keeps values of many lines or great length from burying the rest.
func firstLine(s string) string {
	line, rest, _ := strings.Cut(s, "\n")
	if len(line) > 200 {
		return line[:200] + "..."
	}
	if rest != "" {
		return line + " ..."
	}
	return line
}

// condition is what all kinds' conditions have in common.
type condition interface {
	GetType() string
	GetStatus() string
	GetReason() string
	GetMessage() string
}

func conditions[C condition](p *page, all []C, age func(C) string) {
	if len(all) == 0 {
		return
	}
	p.section(0, "Conditions:")
	p.line(1, "Type\tStatus\tSince\tReason\tMessage")
	p.line(1, "----\t------\t-----\t------\t-------")
	for _, c := range all {
		p.line(1, "%s\t%s\t%s\t%s\t%s", c.GetType(), c.GetStatus(), age(c), orDash(c.GetReason()), oneLine(c.GetMessage()))
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// events writes what happened, oldest first.
func (p *page) events(events []*corev1.Event) {
	if len(events) == 0 {
		_ = p.w.Flush() // as in section
		p.line(0, "Events:\t<none>")
		return
	}
	slices.SortStableFunc(events, func(a, b *corev1.Event) int { return table.EventTime(a).Compare(table.EventTime(b)) })
	p.section(0, "Events:")
	p.line(1, "Type\tReason\tAge\tFrom\tMessage")
	p.line(1, "----\t------\t---\t----\t-------")
	facts := &table.Facts{Now: p.now}
	for _, e := range events {
		p.line(1, "%s\t%s\t%s\t%s\t%s", e.GetType(), e.GetReason(), table.EventAge(facts, e), table.EventSource(e), oneLine(e.GetMessage()))
	}
}

// generic writes every field in the order in which the kind declares them.
func (p *page) generic(s *Subject) error {
	meta := s.Object.GetMetadata()
	p.head(meta)
	p.labels(meta)
	p.created(meta)
	all, err := manifest.ToMap(s.Object)
	if err != nil {
		return err
	}
	fields := s.Object.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if value, is := all[fd.JSONName()]; is && fd.Number() != 1 {
			p.value(0, fd.JSONName(), value, fd)
		}
	}
	return nil
}

// value writes a field of any shape. fd orders the fields inside; it is nil where nothing is known of them.
func (p *page) value(level int, name string, value any, fd protoreflect.FieldDescriptor) {
	switch v := value.(type) {
	case map[string]any:
		p.section(level, name+":")
		p.object(level+1, v, fd)
	case []any:
		p.section(level, name+":")
		for _, item := range v {
			if m, ok := item.(map[string]any); ok {
				p.line(level+1, "-")
				p.object(level+2, m, fd)
			} else {
				p.line(level+1, "- %v", item)
			}
		}
	default:
		p.line(level, "%s:\t%s", name, firstLine(fmt.Sprint(v)))
	}
}

func (p *page) object(level int, m map[string]any, fd protoreflect.FieldDescriptor) {
	if fd == nil || fd.Message() == nil || fd.IsMap() {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			p.value(level, key, m[key], nil)
		}
		return
	}
	fields := fd.Message().Fields()
	known := 0
	for i := range fields.Len() {
		inner := fields.Get(i)
		if value, is := m[inner.JSONName()]; is {
			known++
			p.value(level, inner.JSONName(), value, inner)
		}
	}
	if known == 0 {
		// A message that stands for free JSON.
		for _, key := range slices.Sorted(maps.Keys(m)) {
			p.value(level, key, m[key], nil)
		}
	}
}

// secret writes the sizes of its values, never the values.
func (p *page) secret(s *corev1.Secret) {
	p.head(s.GetMetadata())
	p.labels(s.GetMetadata())
	p.created(s.GetMetadata())
	p.line(0, "Type:\t%s", s.GetType())
	p.section(0, "Data:")
	for _, key := range slices.Sorted(maps.Keys(s.GetData())) {
		p.line(1, "%s:\t%d bytes", key, len(s.GetData()[key]))
	}
}

func (p *page) configMap(m *corev1.ConfigMap) {
	p.head(m.GetMetadata())
	p.labels(m.GetMetadata())
	p.created(m.GetMetadata())
	p.section(0, "Data:")
	for _, key := range slices.Sorted(maps.Keys(m.GetData())) {
		p.section(1, key+":")
		for _, line := range strings.Split(strings.TrimSuffix(m.GetData()[key], "\n"), "\n") {
			p.line(2, "%s", line)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.GetBinaryData())) {
		p.line(1, "%s:\t%d bytes", key, len(m.GetBinaryData()[key]))
	}
}
