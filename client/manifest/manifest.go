// Package manifest is the one codec between Kubernetes' JSON and YAML and Trireme's messages, both ways.
//
// It works from descriptors: names, nesting and values are those of Kubernetes, field options say where a string is a
// quantity or a time has microseconds, and no kind has code here. What it prints decodes with k8s.io/api's own types.
// Everything wrong in a document is reported at once, with file, line, document and path; unknown fields, repeated
// keys and values of the wrong type are refused, and a field that is accepted without effect yields a warning.
//
// It never talks to anyone, sets no defaults and checks no rule of a kind beyond the types of its fields: that is the
// gateway's part. In the chain from apply to Running it comes first, in the CLI, and again in the gateway for patches.
package manifest

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Document is one object of a manifest.
type Document struct {
	Object client.Object
	Kind   *kind.Kind
	// APIVersion as the manifest has it.
	APIVersion string
	// Source is where the object begins: file:line.
	Source string
	// Warnings name the fields that are set and not enforced yet.
	Warnings []string
}

// maxSize bounds one file: larger than everything that a cluster would take, smaller than memory.
const maxSize = 64 << 20

// Decode reads all documents of a text, YAML or JSON, whichever it is; lists (kind: List, PodList) become their items
// and empty documents nothing. name stands in the errors and in Source.
//
// The error is an Errors with all that is wrong in the whole text, and then no document is returned: a manifest is
// taken as a whole or not at all.
func Decode(registry *kind.Registry, name string, r io.Reader) ([]Document, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxSize {
		return nil, Errors{{File: name, Message: fmt.Sprintf("larger than %d MiB", maxSize>>20)}}
	}
	nodes, failure := parse(name, data)
	var documents []Document
	var problems Errors
	for i := range nodes {
		if nodes[i].shape == shapeNull {
			continue
		}
		d := decoder{file: name, document: i + 1}
		documents = append(documents, d.top(registry, &nodes[i])...)
		problems = append(problems, d.sorted()...)
	}
	if failure != nil {
		failure.File, failure.Document = name, len(nodes)+1
		problems = append(problems, failure)
	}
	if err := problems.err(); err != nil {
		return nil, err
	}
	return documents, nil
}

// parse reads YAML, or JSON where the text is that: YAML's readers choke on some of JSON (tabs, surrogate pairs).
func parse(name string, data []byte) ([]node, *Error) {
	if isUTF16(data) {
		return readYAML(data)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) == 0 || first[0] != '{' && first[0] != '[' {
		return readYAML(data)
	}
	fromJSON, failure := readJSON(data)
	if failure == nil || strings.HasSuffix(name, ".json") {
		return fromJSON, failure
	}
	// {a: b} is YAML too.
	if fromYAML, yamlFailure := readYAML(data); yamlFailure == nil {
		return fromYAML, nil
	}
	return fromJSON, failure
}

func isUTF16(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
}

// top reads one document: an object or a list of them.
func (d *decoder) top(registry *kind.Registry, n *node) []Document {
	if n.shape != shapeObject {
		d.fail(nil, n.line, "expected an object with apiVersion, kind and metadata, got %s", n.describe())
		return nil
	}
	return d.object(nil, registry, n, "", "")
}

// object reads an object or a list. ofVersion and ofKind are what the items of a typed list are when they do not say.
func (d *decoder) object(p *path, registry *kind.Registry, n *node, ofVersion, ofKind string) []Document {
	apiVersion, versionOK := d.typeField(p, n, "apiVersion", ofVersion)
	name, kindOK := d.typeField(p, n, "kind", ofKind)
	if !versionOK || !kindOK {
		return nil
	}
	if k, known := registry.ByManifest(apiVersion, name); known {
		return d.one(p, k, apiVersion, n)
	}
	if name == "List" && apiVersion == "v1" {
		return d.list(p, registry, n, "", "")
	}
	if item, isList := strings.CutSuffix(name, "List"); isList {
		if k, known := registry.ByManifest(apiVersion, item); known {
			return d.list(p, registry, n, apiVersion, k.Name)
		}
	}
	d.unknownKind(p, registry, n, apiVersion, name)
	return nil
}

// typeField reads apiVersion or kind.
func (d *decoder) typeField(p *path, n *node, name, otherwise string) (string, bool) {
	value := n.find(name)
	switch {
	case value == nil || value.shape == shapeNull || value.text == "" && value.shape == shapeText:
		if otherwise != "" {
			return otherwise, true
		}
		example := "v1, apps/v1"
		if name == "kind" {
			example = "Pod, Deployment"
		}
		d.fail(p.field(name), n.line, "missing; every object names its %s, such as %s", name, example)
		return "", false
	case value.shape != shapeText:
		d.expected(p.field(name), value, "a string")
		return "", false
	}
	return value.text, true
}

func (d *decoder) one(p *path, k *kind.Kind, apiVersion string, n *node) []Document {
	object := client.New(k)
	d.message(p, n, object.ProtoReflect(), "apiVersion", "kind")
	return []Document{{
		Object: object, Kind: k, APIVersion: apiVersion,
		Source: fmt.Sprintf("%s:%d", d.file, n.line), Warnings: Unenforced(object),
	}}
}

func (d *decoder) list(p *path, registry *kind.Registry, n *node, ofVersion, ofKind string) []Document {
	var documents []Document
	for _, e := range d.entries(p, n) {
		here := p.field(e.key)
		switch {
		case e.key == "apiVersion" || e.key == "kind" || e.value.shape == shapeNull:
		case e.key == "metadata":
			d.message(here, &e.value, (&metav1.ListMeta{}).ProtoReflect())
		case e.key == "items" && e.value.shape != shapeList:
			d.expected(here, &e.value, "a list")
		case e.key == "items":
			for i := range e.value.items {
				item := &e.value.items[i]
				if item.shape != shapeObject {
					d.expected(here.item(i), item, "an object")
					continue
				}
				documents = append(documents, d.object(here.item(i), registry, item, ofVersion, ofKind)...)
			}
		default:
			d.fail(here, e.line, "unknown field of a list; known are metadata and items")
		}
	}
	return documents
}

// unknownKind says which of apiVersion and kind is wrong, and what there is instead.
func (d *decoder) unknownKind(p *path, registry *kind.Registry, n *node, apiVersion, name string) {
	var versions, names []string
	for _, k := range registry.Served() {
		names = append(names, k.Name)
		if k.Name == name {
			versions = append(versions, k.APIVersions...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(versions) > 0 {
		d.fail(p.field("apiVersion"), lineOf(n, "apiVersion"), "unknown version %q of %s; known: %s",
			apiVersion, name, strings.Join(versions, ", "))
		return
	}
	hint := ""
	if match := closest(name, names); match != "" {
		hint = fmt.Sprintf("did you mean %s? ", match)
	}
	d.fail(p.field("kind"), lineOf(n, "kind"), "unknown kind %q of %s; %sknown kinds: %s",
		name, apiVersion, hint, strings.Join(names, ", "))
}

func lineOf(n *node, key string) int {
	if value := n.find(key); value != nil {
		return value.line
	}
	return n.line
}

// FromJSON fills an empty message from the JSON of one object, as strictly as Decode. apiVersion and kind may be
// absent; where they are given they must be the message's own. The errors carry line, path and message, and no file.
func FromJSON(data []byte, into proto.Message) error {
	nodes, failure := readJSON(data)
	if failure != nil {
		return Errors{failure}
	}
	if len(nodes) != 1 {
		return Errors{{Line: 1, Message: fmt.Sprintf("expected one JSON object, got %d values", len(nodes))}}
	}
	n := &nodes[0]
	m := into.ProtoReflect()
	d := decoder{}
	options := kind.OptionsOf(m.Descriptor())
	if options == nil || n.shape != shapeObject {
		d.message(nil, n, m)
		return d.errors.err()
	}
	d.sameType(n, "kind", []string{options.GetKind()})
	d.sameType(n, "apiVersion", options.GetApiVersions())
	d.message(nil, n, m, "apiVersion", "kind")
	return d.errors.err()
}

func (d *decoder) sameType(n *node, name string, allowed []string) {
	value := n.find(name)
	if value != nil && value.shape != shapeNull && (value.shape != shapeText || !slices.Contains(allowed, value.text)) {
		var root *path
		d.fail(root.field(name), value.line, "expected %s, got %s", strings.Join(allowed, " or "), value.describe())
	}
}

// Unenforced names the set fields of an object that are accepted and kept without any effect yet, as warnings:
// "spec.hostUsers: accepted, but not enforced yet". Ask it of what the user wrote, before defaults are set.
func Unenforced(object proto.Message) []string {
	var warnings []string
	unenforced(nil, object.ProtoReflect(), &warnings)
	return warnings
}

func unenforced(p *path, m protoreflect.Message, warnings *[]string) {
	for _, f := range schemaOf(m.Descriptor()).fields {
		if !m.Has(f.FieldDescriptor) {
			continue
		}
		here := p.field(f.name)
		if f.unenforced {
			*warnings = append(*warnings, here.String()+": accepted, but not enforced yet")
			continue
		}
		if f.messageType == nil || f.wellKnown != "" {
			continue
		}
		switch value := m.Get(f.FieldDescriptor); {
		case f.IsMap():
			for _, key := range sortedKeys(value.Map()) {
				unenforced(here.key(key.String()), value.Map().Get(key).Message(), warnings)
			}
		case f.IsList():
			for i := range value.List().Len() {
				unenforced(here.item(i), value.List().Get(i).Message(), warnings)
			}
		default:
			unenforced(here, value.Message(), warnings)
		}
	}
}
