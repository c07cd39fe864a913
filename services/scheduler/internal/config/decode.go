package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/manifest"
)

// value is a part of the file that is decoded later, when it is known into what.
type value struct {
	node *yaml.Node
	path string
}

// decoder reads YAML (and JSON, which is YAML) into Go structs by their json tags, and knows on which line every field
// stood.
type decoder struct {
	file  string
	lines map[string]int
	errs  manifest.Errors
	depth int
}

// maxDepth bounds nesting, so that no file can exhaust the stack.
const maxDepth = 100

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// parse reads the one document of a file.
func (d *decoder) parse(data []byte) *yaml.Node {
	reader := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	err := reader.Decode(&document)
	switch {
	case errors.Is(err, io.EOF) || err == nil && len(document.Content) == 0:
		d.failAt(0, "", "the file is empty")
		return nil
	case err != nil:
		match := yamlLine.FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(match[1])
		d.failAt(line, "", "not valid YAML: %s", err.Error()[len(match[0]):])
		return nil
	}
	if err := reader.Decode(&second); !errors.Is(err, io.EOF) {
		d.failAt(second.Line, "", "a second document; one file is one configuration")
		return nil
	}
	return document.Content[0]
}

// line of a field, or of the nearest field around it.
func (d *decoder) line(path string) int {
	for path != "" {
		if line, ok := d.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return d.lines[""]
}

// fail reports what is wrong with a field, unless it is known to be wrong: what could not be read says nothing.
func (d *decoder) fail(path, format string, args ...any) {
	if !slices.ContainsFunc(d.errs, func(e *manifest.Error) bool { return e.Path == path }) {
		d.failAt(d.line(path), path, format, args...)
	}
}

func (d *decoder) failAt(line int, path, format string, args ...any) {
	d.errs = append(d.errs, &manifest.Error{File: d.file, Line: line, Path: path, Message: fmt.Sprintf(format, args...)})
}

// decode fills into, a settable value, from a node. What fails is left as it was.
func (d *decoder) decode(n *yaml.Node, path string, into reflect.Value) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.depth++; d.depth > maxDepth {
		d.failAt(n.Line, path, "values are nested more than %d deep", maxDepth)
		return
	}
	defer func() { d.depth-- }()
	if _, known := d.lines[path]; !known {
		d.lines[path] = n.Line
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // null is absent
	}
	switch target := into.Addr().Interface().(type) {
	case *value:
		*target = value{n, path}
		return
	case *time.Duration:
		if text, ok := d.text(n, path, "a duration such as 15s"); ok {
			parsed, err := time.ParseDuration(text)
			if err != nil {
				d.failAt(n.Line, path, "expected a duration such as 15s, got %q", text)
				return
			}
			*target = parsed
		}
		return
	case proto.Message:
		d.message(n, path, target)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		if into.IsNil() {
			into.Set(reflect.New(into.Type().Elem()))
		}
		if m, ok := into.Interface().(proto.Message); ok {
			d.message(n, path, m)
			return
		}
		d.decode(n, path, into.Elem())
	case reflect.Struct:
		d.object(n, path, into)
	case reflect.Slice:
		d.list(n, path, into)
	case reflect.Map:
		d.mapping(n, path, into)
	case reflect.String:
		if text, ok := d.text(n, path, "a string"); ok {
			into.SetString(text)
		}
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			d.expected(n, path, "true or false")
			return
		}
		into.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int32, reflect.Int64, reflect.Int:
		number, err := strconv.ParseInt(n.Value, 0, into.Type().Bits())
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil {
			d.expected(n, path, fmt.Sprintf("an integer of %d bits", into.Type().Bits()))
			return
		}
		into.SetInt(number)
	case reflect.Float64:
		number, err := strconv.ParseFloat(n.Value, 64)
		if tag := n.ShortTag(); n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" || err != nil {
			d.expected(n, path, "a number")
			return
		}
		into.SetFloat(number)
	default:
		panic(fmt.Sprintf("config: a file cannot hold a %s", into.Type()))
	}
}

func (d *decoder) expected(n *yaml.Node, path, want string) {
	d.failAt(n.Line, path, "expected %s, got %s", want, describe(n))
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return fmt.Sprintf("the string %q", n.Value)
	case "!!bool":
		return "the boolean " + n.Value
	}
	return "the number " + n.Value
}

func (d *decoder) text(n *yaml.Node, path, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		d.expected(n, path, want)
		return "", false
	}
	return n.Value, true
}

// keys reads an object's keys, each once.
func (d *decoder) keys(n *yaml.Node, path string, each func(name, path string, key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.expected(n, path, "an object")
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		below := strings.TrimPrefix(path+"."+key.Value, ".")
		if before, twice := first[key.Value]; twice {
			d.failAt(key.Line, below, "stands here twice, first on line %d", before)
			continue
		}
		first[key.Value] = key.Line
		d.lines[below] = key.Line
		each(key.Value, below, key, n.Content[i+1])
	}
}

// object fills a struct, whose fields are those with a json tag; every other key is an error.
func (d *decoder) object(n *yaml.Node, path string, into reflect.Value) {
	fields := map[string]int{}
	var names []string
	for i := range into.NumField() {
		name, _, _ := strings.Cut(into.Type().Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields[name] = i
			names = append(names, name)
		}
	}
	slices.Sort(names)
	d.keys(n, path, func(name, below string, key, value *yaml.Node) {
		i, known := fields[name]
		if !known {
			if len(names) == 0 {
				d.failAt(key.Line, below, "unknown field; none is known here")
				return
			}
			d.failAt(key.Line, below, "unknown field; known are %s", strings.Join(names, ", "))
			return
		}
		d.decode(value, below, into.Field(i))
	})
}

func (d *decoder) list(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.expected(n, path, "a list")
		return
	}
	out := reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.decode(item, fmt.Sprintf("%s[%d]", path, i), out.Index(i))
	}
	into.Set(out)
}

func (d *decoder) mapping(n *yaml.Node, path string, into reflect.Value) {
	out := reflect.MakeMap(into.Type())
	d.keys(n, path, func(name, below string, _, value *yaml.Node) {
		item := reflect.New(into.Type().Elem()).Elem()
		d.decode(value, below, item)
		out.SetMapIndex(reflect.ValueOf(name), item)
	})
	into.Set(out)
}

// message fills a part that has the shape of an API object's part, such as a node affinity.
func (d *decoder) message(n *yaml.Node, path string, into proto.Message) {
	var tree any
	if err := n.Decode(&tree); err != nil {
		d.failAt(n.Line, path, "%v", err)
		return
	}
	text, err := json.Marshal(tree)
	if err == nil {
		err = protojson.Unmarshal(text, into)
	}
	if err != nil {
		d.failAt(n.Line, path, "%s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "))
	}
}
