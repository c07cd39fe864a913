// Package table turns objects into the rows that `trireme get` prints. Columns come from the kind's descriptor; the
// few that are more than one field are computed in columns.go.
//
// It is pure: objects and the time go in, text comes out. It never asks the gateway for anything.
package table

import (
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// none is what an absent value is printed as.
const none = "<none>"

// Facts are what cells need beyond the object itself.
type Facts struct {
	// Now is the time that ages are counted to.
	Now time.Time
	// UsedGPUs is how many GPUs the pods of each node ask for; nil where it is not known.
	UsedGPUs map[string]int64
}

// Options choose columns.
type Options struct {
	// Wide adds the kind's wide columns.
	Wide bool
	// Namespace puts the object's namespace first.
	Namespace bool
	// Labels puts the object's labels last.
	Labels bool
	// Prefix puts the kind before each name: deployment.apps/web.
	Prefix bool
}

// Layout is the columns of one kind as chosen by options.
type Layout struct {
	columns []column
}

type column struct {
	name string
	cell func(*Facts, client.Object) string
}

// LayoutOf chooses the columns of a kind.
func LayoutOf(k *kind.Kind, options Options) *Layout {
	l := &Layout{}
	add := func(name string, cell func(*Facts, client.Object) string) {
		l.columns = append(l.columns, column{name, cell})
	}
	if options.Namespace && k.Namespaced {
		add("NAMESPACE", func(_ *Facts, o client.Object) string { return o.GetMetadata().GetNamespace() })
	}
	name := func(_ *Facts, o client.Object) string {
		if options.Prefix {
			return ResourceName(k) + "/" + o.GetMetadata().GetName()
		}
		return o.GetMetadata().GetName()
	}
	declared := k.Options.GetPrintColumns()
	named, aged := false, false
	for _, c := range declared {
		named = named || c.GetName() == "NAME"
		aged = aged || c.GetType() == metav1.ColumnType_COLUMN_TYPE_AGE
	}
	if !named || options.Prefix {
		add("NAME", name)
	}
	age := func(f *Facts, o client.Object) string {
		if o.GetMetadata().GetCreationTimestamp() == nil {
			return "<unknown>"
		}
		return Since(f.Now, o.GetMetadata().GetCreationTimestamp().AsTime())
	}
	for _, c := range declared {
		if !c.GetWide() {
			add(c.GetName(), cellOf(k, c))
		}
	}
	if !aged {
		add("AGE", age)
	}
	for _, c := range declared {
		if c.GetWide() && options.Wide && !(c.GetName() == "NAME" && options.Prefix) {
			add(c.GetName(), cellOf(k, c))
		}
	}
	if options.Labels {
		add("LABELS", func(_ *Facts, o client.Object) string { return Map(o.GetMetadata().GetLabels()) })
	}
	return l
}

// Header is the names of the columns.
func (l *Layout) Header() []string {
	header := make([]string, len(l.columns))
	for i, c := range l.columns {
		header[i] = c.name
	}
	return header
}

// Row is the cells of one object.
func (l *Layout) Row(f *Facts, o client.Object) []string {
	row := make([]string, len(l.columns))
	for i, c := range l.columns {
		// Cells are one line each, whatever a message contains.
		row[i] = strings.Join(strings.Fields(c.cell(f, o)), " ")
	}
	return row
}

// ResourceName is how a kind is written before a name: pod, deployment.apps.
func ResourceName(k *kind.Kind) string {
	name := strings.ToLower(k.Name)
	if group, _, ok := strings.Cut(k.APIVersion(), "/"); ok {
		return name + "." + group
	}
	return name
}

// cellOf returns how a declared column is filled.
func cellOf(k *kind.Kind, c *metav1.PrintColumn) func(*Facts, client.Object) string {
	if c.GetJsonPath() == "" {
		if cell := computed(k.Message.Descriptor().FullName(), c.GetName()); cell != nil {
			return cell
		}
		return func(*Facts, client.Object) string { return none }
	}
	path := strings.Split(strings.TrimPrefix(c.GetJsonPath(), "."), ".")
	if c.GetType() == metav1.ColumnType_COLUMN_TYPE_AGE {
		return func(f *Facts, o client.Object) string {
			m, fd := walk(o.ProtoReflect(), path)
			if fd == nil || fd.Message() == nil || !m.Has(fd) {
				return "<unknown>"
			}
			stamp := m.Get(fd).Message()
			fields := stamp.Descriptor().Fields()
			return Since(f.Now, time.Unix(stamp.Get(fields.ByNumber(1)).Int(), stamp.Get(fields.ByNumber(2)).Int()))
		}
	}
	return func(_ *Facts, o client.Object) string {
		m, fd := walk(o.ProtoReflect(), path)
		if fd == nil {
			return none
		}
		return fieldText(m, fd)
	}
}

// walk follows a path of JSON names to the message that holds its last field. A status that is not there yet counts as
// an empty one; any other message that is missing ends the walk with nil.
func walk(m protoreflect.Message, path []string) (protoreflect.Message, protoreflect.FieldDescriptor) {
	for i, name := range path {
		fd := m.Descriptor().Fields().ByJSONName(name)
		switch {
		case fd == nil:
			return nil, nil
		case i == len(path)-1:
			return m, fd
		case fd.Message() == nil || fd.IsList() || fd.IsMap():
			return nil, nil
		case !m.Has(fd) && (i > 0 || name != "status"):
			return nil, nil
		}
		m = m.Get(fd).Message()
	}
	return nil, nil
}

func fieldText(m protoreflect.Message, fd protoreflect.FieldDescriptor) string {
	value := m.Get(fd)
	switch {
	case fd.IsList() || fd.IsMap() || fd.Message() != nil || fd.Kind() == protoreflect.BytesKind:
		return none
	case fd.Kind() == protoreflect.BoolKind:
		return value.String()
	case fd.HasPresence() && !m.Has(fd), value.String() == "":
		return none
	}
	return value.String()
}
