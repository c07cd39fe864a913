package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/util/jsonpath"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	"trireme.dev/cmd/trireme/internal/cli/table"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// format is what -o says.
type format struct {
	name string // "", wide, yaml, json, name, jsonpath
	path *jsonpath.JSONPath
	// owners are shown in yaml and json.
	owners bool
}

const formats = "wide, yaml, json, name, jsonpath=TEMPLATE"

func parseFormat(text string) (*format, error) {
	name, template, _ := strings.Cut(text, "=")
	switch name {
	case "", "wide", "yaml", "json", "name":
		if template != "" {
			break
		}
		return &format{name: name}, nil
	case "jsonpath":
		if template == "" {
			return nil, usage("-o jsonpath needs a template, as in -o jsonpath='{.metadata.name}'")
		}
		path, err := parsePath(template)
		if err != nil {
			return nil, usage("-o %s: %w", text, err)
		}
		return &format{name: name, path: path}, nil
	}
	return nil, usage("-o %s: want one of %s", text, formats)
}

// parsePath reads a JSONPath in any of the forms that kubectl takes: {.a.b}, .a.b, a.b. Text outside braces stands for
// itself where there are any.
func parsePath(text string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(strings.TrimPrefix(text, "$"), ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path, path.Parse(text)
}

// printObjects prints objects in a format that is not a table. single says that one object was asked for by name.
func (c *cli) printObjects(f *format, found []located, single bool) error {
	if !f.owners && f.name != "jsonpath" {
		shown := make([]located, len(found))
		for i, l := range found {
			shown[i] = located{l.kind, withoutOwners(l.object)}
		}
		found = shown
	}
	switch f.name {
	case "name":
		for _, l := range found {
			c.print("%s", l)
		}
		return nil
	case "jsonpath":
		return c.printPath(f.path, found, single)
	}
	var out []byte
	var err error
	switch {
	case single && f.name == "yaml":
		out, err = manifest.EncodeYAML(found[0].kind, found[0].object)
	case single:
		out, err = manifest.EncodeJSON(found[0].kind, found[0].object)
	default:
		objects := make([]client.Object, len(found))
		for i, l := range found {
			objects[i] = l.object
		}
		encode := manifest.EncodeListYAML
		if f.name == "json" {
			encode = manifest.EncodeListJSON
		}
		out, err = encode(objects, &metav1.ListMeta{})
	}
	if err != nil {
		return err
	}
	_, err = c.Out.Write(out)
	return err
}

// withoutOwners returns an object without its managedFields, which are for programs.
func withoutOwners(o client.Object) client.Object {
	if len(o.GetMetadata().GetManagedFields()) == 0 {
		return o
	}
	shown, _ := proto.Clone(o).(client.Object)
	shown.GetMetadata().ManagedFields = nil
	return shown
}

func (c *cli) printPath(path *jsonpath.JSONPath, found []located, single bool) error {
	var items []any
	for _, l := range found {
		m, err := manifest.ToMap(l.object)
		if err != nil {
			return err
		}
		items = append(items, m)
	}
	var data any = map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}
	if single {
		data = items[0]
	}
	var out bytes.Buffer
	if err := path.Execute(&out, data); err != nil {
		return fmt.Errorf("jsonpath: %w", err)
	}
	_, err := c.Out.Write(out.Bytes())
	return err
}

// rows writes the rows of a table as they come; a column never becomes narrower.
type rows struct {
	out    io.Writer
	widths []int
}

func (r *rows) write(lines ...[]string) error {
	for _, line := range lines {
		for i, cell := range line {
			if i == len(r.widths) {
				r.widths = append(r.widths, 6)
			}
			r.widths[i] = max(r.widths[i], utf8.RuneCountInString(cell)+3)
		}
	}
	var b bytes.Buffer
	for _, line := range lines {
		for i, cell := range line {
			b.WriteString(cell)
			if i < len(line)-1 {
				b.WriteString(strings.Repeat(" ", r.widths[i]-utf8.RuneCountInString(cell)))
			}
		}
		b.WriteByte('\n')
	}
	_, err := r.out.Write(b.Bytes())
	return err
}

// printTables prints one table for each kind, in the order in which kinds first occur.
func (c *cli) printTables(ctx context.Context, found []located, options table.Options, header bool) error {
	byKind := map[*kind.Kind][]client.Object{}
	var order []*kind.Kind
	for _, l := range found {
		if byKind[l.kind] == nil {
			order = append(order, l.kind)
		}
		byKind[l.kind] = append(byKind[l.kind], l.object)
	}
	for i, k := range order {
		if i > 0 {
			c.print("")
		}
		layout := table.LayoutOf(k, options)
		facts := c.facts(ctx, k)
		var lines [][]string
		if header {
			lines = append(lines, layout.Header())
		}
		for _, o := range byKind[k] {
			lines = append(lines, layout.Row(facts, o))
		}
		if err := (&rows{out: c.Out}).write(lines...); err != nil {
			return err
		}
	}
	return nil
}

// facts gathers what the cells of a kind need. A cell whose facts cannot be had says so itself.
func (c *cli) facts(ctx context.Context, k *kind.Kind) *table.Facts {
	facts := &table.Facts{Now: time.Now()}
	if k.Message.Descriptor().FullName() != "trireme.core.v1.Node" {
		return facts
	}
	if list, err := client.For[*corev1.Pod](c.conn).List(ctx, client.ListOptions{}); err == nil {
		facts.UsedGPUs = table.UsedGPUs(list.Items)
	}
	return facts
}
