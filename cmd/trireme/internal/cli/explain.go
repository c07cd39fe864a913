package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func (c *cli) explainCommand() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:     "explain KIND[.FIELD...]",
		Short:   "Print the fields of a kind: types, defaults, allowed values",
		Example: "  trireme explain pod.spec.containers\n  trireme explain deployment --recursive",
		Args:    exactly(1, "a kind, or a field of one"),
		RunE:    func(_ *cobra.Command, args []string) error { return c.explain(args[0], recursive) },
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.kindWords(typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		},
	}
	cmd.Flags().BoolVar(&recursive, "recursive", false, "print the fields of fields too")
	return cmd
}

func (c *cli) explain(arg string, recursive bool) error {
	word, path, _ := strings.Cut(arg, ".")
	k, err := c.one(word)
	if err != nil {
		return err
	}
	message := k.Message.Descriptor()
	var field protoreflect.FieldDescriptor
	walked := strings.ToLower(k.Name)
	if path != "" {
		for _, name := range strings.Split(path, ".") {
			if message == nil {
				return fmt.Errorf("%s has no fields of its own", walked)
			}
			if field = message.Fields().ByJSONName(name); field == nil || optionsOf(field).GetInternal() {
				return fmt.Errorf("%s has no field %q; it has %s", walked, name, strings.Join(fieldNames(message), ", "))
			}
			walked += "." + name
			message = inside(field)
		}
	}
	c.print("KIND:     %s", k.Name)
	c.print("VERSION:  %s", strings.Join(k.APIVersions, ", "))
	if field != nil {
		c.print("FIELD:    %s <%s>", field.JSONName(), typeName(field))
		if rules := rulesOf(field); rules != "" {
			c.print("RULES:    %s", rules)
		}
	}
	if message == nil {
		return nil
	}
	c.print("FIELDS:")
	lines := explainFields(nil, message, 1, recursive, map[protoreflect.FullName]bool{})
	if field == nil {
		lines = append([][]string{{"  apiVersion", "<string>"}, {"  kind", "<string>"}}, lines...)
	}
	return (&rows{out: c.Out}).write(lines...)
}

func explainFields(lines [][]string, message protoreflect.MessageDescriptor, level int, recursive bool, above map[protoreflect.FullName]bool) [][]string {
	fields := message.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if optionsOf(f).GetInternal() {
			continue
		}
		line := []string{strings.Repeat("  ", level) + f.JSONName(), "<" + typeName(f) + ">"}
		if rules := rulesOf(f); rules != "" {
			line = append(line, rules)
		}
		lines = append(lines, line)
		inner := inside(f)
		if !recursive || inner == nil || above[inner.FullName()] {
			continue
		}
		above[inner.FullName()] = true
		lines = explainFields(lines, inner, level+1, recursive, above)
		delete(above, inner.FullName())
	}
	return lines
}

func fieldNames(message protoreflect.MessageDescriptor) []string {
	var names []string
	fields := message.Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); !optionsOf(f).GetInternal() {
			names = append(names, f.JSONName())
		}
	}
	return names
}

// inside is the message that a field holds; nil for scalars and for messages that stand for a JSON value.
func inside(f protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if f.IsMap() {
		f = f.MapValue()
	}
	if m := f.Message(); m != nil && m.FullName().Parent() != "google.protobuf" {
		return m
	}
	return nil
}

func optionsOf(f protoreflect.FieldDescriptor) *metav1.FieldOptions {
	options, _ := proto.GetExtension(f.Options(), metav1.E_Field).(*metav1.FieldOptions)
	return options
}

// typeName is a field's type as manifests see it.
func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map[string]" + scalarName(f.MapValue(), optionsOf(f))
	case f.IsList():
		return "[]" + scalarName(f, optionsOf(f))
	}
	return scalarName(f, optionsOf(f))
}

func scalarName(f protoreflect.FieldDescriptor, options *metav1.FieldOptions) string {
	switch options.GetFormat() {
	case metav1.Format_FORMAT_QUANTITY:
		return "Quantity"
	case metav1.Format_FORMAT_INT_OR_STRING:
		return "integer or string"
	case metav1.Format_FORMAT_INT_OR_PERCENT:
		return "integer or percentage"
	case metav1.Format_FORMAT_RAW_JSON:
		return "any"
	}
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		if f.Message().FullName() == "google.protobuf.Timestamp" {
			return "Time"
		}
		return string(f.Message().Name())
	case protoreflect.BoolKind:
		return "boolean"
	case protoreflect.BytesKind:
		return "base64 string"
	case protoreflect.StringKind, protoreflect.EnumKind:
		return "string"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "number"
	}
	return "integer"
}

// rulesOf lists what is asked of a field.
func rulesOf(f protoreflect.FieldDescriptor) string {
	o := optionsOf(f)
	var rules []string
	add := func(is bool, format string, args ...any) {
		if is {
			rules = append(rules, fmt.Sprintf(format, args...))
		}
	}
	add(o.GetRequired(), "required")
	add(o.GetDefaultValue() != "", "default %s", o.GetDefaultValue())
	add(len(o.GetAllowedValues()) > 0, "one of %s", strings.Join(o.GetAllowedValues(), ", "))
	add(o.GetMinimum() != 0 || o != nil && o.Minimum != nil, "from %d", o.GetMinimum())
	add(o != nil && o.Maximum != nil, "to %d", o.GetMaximum())
	add(o.GetMaxLength() > 0, "at most %d bytes", o.GetMaxLength())
	add(o.GetMaxItems() > 0, "at most %d items", o.GetMaxItems())
	add(o.GetImmutable(), "cannot change")
	add(o.GetUnenforced(), "not enforced yet")
	return strings.Join(rules, "; ")
}
