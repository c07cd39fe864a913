package manifest

import (
	"fmt"
	"strconv"
	"strings"
)

// shape is what a value in a document is, before any schema says what it should be.
type shape uint8

const (
	shapeNull shape = iota
	shapeBool
	shapeInteger
	shapeFloat
	shapeText
	shapeList
	shapeObject
)

// maxDepth bounds the nesting of a document, so that no input can exhaust the stack.
const maxDepth = 500

// node is one value of a document. Both the YAML and the JSON reader produce this tree, so that everything after them
// exists once.
type node struct {
	shape shape
	line  int
	// text is the value of a scalar in JSON's spelling: true, 420, 0.5; for text, the text itself.
	text string
	// source is the scalar as the document spells it (yes, 0644), for messages.
	source  string
	items   []node
	entries []entry
}

// entry is one key of an object with its value, in the order of the document. Keys may repeat; whoever reads the
// object refuses that, because only there the path is known.
type entry struct {
	key   string
	line  int
	value node
}

// describe names the value for a message: the string "abc", the number 5, a list.
func (n *node) describe() string {
	switch n.shape {
	case shapeNull:
		return "null"
	case shapeBool:
		return "the boolean " + n.source
	case shapeInteger, shapeFloat:
		return "the number " + n.source
	case shapeText:
		const most = 40
		if len(n.text) > most {
			return fmt.Sprintf("the string %q...", strings.ToValidUTF8(n.text[:most], ""))
		}
		return fmt.Sprintf("the string %q", n.text)
	case shapeList:
		return "a list"
	default:
		return "a mapping"
	}
}

// find returns the first value of a key.
func (n *node) find(key string) *node {
	for i := range n.entries {
		if n.entries[i].key == key {
			return &n.entries[i].value
		}
	}
	return nil
}

// path is a place in a document. It is a chain on the stack and becomes text only when something is wrong there.
type path struct {
	parent *path
	name   string
	index  int
	step   step
}

type step uint8

const (
	stepField step = iota
	stepIndex
	stepKey
)

func (p *path) field(name string) *path { return &path{parent: p, name: name, step: stepField} }
func (p *path) item(index int) *path    { return &path{parent: p, index: index, step: stepIndex} }
func (p *path) key(key string) *path    { return &path{parent: p, name: key, step: stepKey} }

// String spells the path as Kubernetes does: spec.containers[0].resources.limits[cpu].
func (p *path) String() string {
	if p == nil {
		return ""
	}
	prefix := p.parent.String()
	switch p.step {
	case stepIndex:
		return prefix + "[" + strconv.Itoa(p.index) + "]"
	case stepKey:
		return prefix + "[" + p.name + "]"
	default:
		if prefix == "" {
			return p.name
		}
		return prefix + "." + p.name
	}
}
