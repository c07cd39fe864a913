package schema

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"trireme.dev/client/apierr"
)

// path is the way to a field as manifests spell it. It is linked, so that walking a valid object builds no strings.
// A nil path is the object itself.
type path struct {
	parent *path
	name   string // of a field
	index  int    // of an item, where name is empty and entry false
	entry  bool   // of a map, under the key in name
}

// nowhere is the path of who does not want to know: all paths from it are itself.
var nowhere = &path{}

func (p *path) field(name string) *path {
	if p == nowhere {
		return p
	}
	return &path{parent: p, name: name}
}

func (p *path) item(i int) *path {
	if p == nowhere {
		return p
	}
	return &path{parent: p, index: i}
}

func (p *path) key(k string) *path {
	if p == nowhere {
		return p
	}
	return &path{parent: p, name: k, entry: true}
}

// String gives spec.containers[0].resources.limits[cpu].
func (p *path) String() string {
	if p == nil || p == nowhere {
		return ""
	}
	before := p.parent.String()
	switch {
	case p.entry:
		return before + "[" + brief(p.name) + "]"
	case p.name == "":
		return before + "[" + strconv.Itoa(p.index) + "]"
	case before == "":
		return p.name
	}
	return before + "." + p.name
}

// last is the name of the field at the end of the path.
func (p *path) last() string {
	for ; p != nil; p = p.parent {
		if p.name != "" && !p.entry {
			return p.name
		}
	}
	return "object"
}

const (
	// maxViolations bounds an answer: nobody reads more, and it travels in headers.
	maxViolations = 200
	// maxCounted is how many more are counted. Nobody is served by knowing that there are 100,000, and finding them costs.
	maxCounted = 800
	// maxValue is how much of a value an answer repeats.
	maxValue = 512
)

// violations collects what is wrong, in Kubernetes' words.
type violations struct {
	list []apierr.Violation
	more int
}

// all returns what is wrong and, beyond maxViolations, how much more there is.
func (v *violations) all() []apierr.Violation {
	switch {
	case v.full():
		return append(v.list, apierr.Violation{Message: "and at least " + strconv.Itoa(v.more) + " more"})
	case v.more > 0:
		return append(v.list, apierr.Violation{Message: "and " + strconv.Itoa(v.more) + " more"})
	}
	return v.list
}

// full reports whether it makes no difference any more what else is wrong.
func (v *violations) full() bool { return v.more >= maxCounted }

func (v *violations) add(p *path, message string) {
	if len(v.list) == maxViolations {
		v.more++
		return
	}
	v.list = append(v.list, apierr.Violation{Field: p.String(), Message: message})
}

// brief is a value as answers repeat it.
func brief(value string) string {
	if len(value) <= maxValue {
		return value
	}
	return strings.ToValidUTF8(value[:maxValue], "") + "... (" + strconv.Itoa(len(value)) + " bytes)"
}

func (v *violations) required(p *path, detail string) { v.add(p, join("Required value", detail)) }

func (v *violations) invalid(p *path, value, detail string) {
	v.add(p, join("Invalid value: "+brief(value), detail))
}

func (v *violations) forbidden(p *path, detail string) { v.add(p, join("Forbidden", detail)) }

func (v *violations) duplicate(p *path, value string) { v.add(p, "Duplicate value: "+brief(value)) }

func (v *violations) notFound(p *path, value string) { v.add(p, "Not found: "+brief(value)) }

func (v *violations) unsupported(p *path, value string, allowed []string) {
	quoted := make([]string, 0, len(allowed))
	for _, a := range allowed {
		if a != "" {
			quoted = append(quoted, strconv.Quote(a))
		}
	}
	v.add(p, "Unsupported value: "+brief(value)+": supported values: "+strings.Join(quoted, ", "))
}

func join(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}

// newMessage returns an empty message of the type: the compiled-in one where there is one.
func newMessage(d protoreflect.MessageDescriptor) protoreflect.Message {
	if t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil && t.Descriptor() == d {
		return t.New()
	}
	return dynamicpb.NewMessage(d)
}
