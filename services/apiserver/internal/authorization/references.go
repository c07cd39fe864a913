package authorization

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// MirrorAnnotation marks a pod that an agent shows of what it runs by itself. It opens nothing: the agent made it up.
const MirrorAnnotation = "kubernetes.io/config.mirror"

// references finds in the bytes of a pod whether it names an object.
type references struct {
	spec     protowire.Number
	metadata protowire.Number
	// annotations of metadata.
	annotations protowire.Number
	root        *referring
}

// referring are the fields of a message in which references are.
type referring struct {
	inner map[protowire.Number]*referring
	names map[protowire.Number]string // the resource that the text in a field is the name of
}

// podReferences finds all places of a pod's spec that name a ConfigMap, a Secret or a ServiceAccount, by what the schema
// calls them.
func podReferences() (*references, error) {
	pod := (&corev1.Pod{}).ProtoReflect().Descriptor()
	spec, meta := pod.Fields().ByName("spec"), pod.Fields().ByName("metadata")
	r := &references{
		spec: spec.Number(), metadata: meta.Number(), annotations: meta.Message().Fields().ByName("annotations").Number(),
		root: referringOf(spec.Message(), nil),
	}
	if r.root == nil {
		return nil, fmt.Errorf("no field of a pod names a Secret")
	}
	return r, nil
}

// referringOf returns the references in a message, nil where there are none. above are the messages that it is in.
func referringOf(d protoreflect.MessageDescriptor, above []protoreflect.FullName) *referring {
	for _, a := range above {
		if a == d.FullName() {
			return nil
		}
	}
	above = append(above[:len(above):len(above)], d.FullName())
	r := &referring{inner: map[protowire.Number]*referring{}, names: map[protowire.Number]string{}}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		switch {
		case fd.IsMap():
		case fd.Kind() == protoreflect.StringKind:
			if resource := namesResource(d.Name(), fd.Name()); resource != "" {
				r.names[fd.Number()] = resource
			}
		case fd.Message() != nil && fd.Message().Name() == "LocalObjectReference":
			if strings.Contains(string(fd.Name()), "secret") {
				name := fd.Message().Fields().ByName("name").Number()
				r.inner[fd.Number()] = &referring{names: map[protowire.Number]string{name: "secrets"}}
			}
		case fd.Message() != nil:
			if inner := referringOf(fd.Message(), above); inner != nil {
				r.inner[fd.Number()] = inner
			}
		}
	}
	if len(r.inner) == 0 && len(r.names) == 0 {
		return nil
	}
	return r
}

// namesResource is what a text field of a message is the name of.
func namesResource(message, field protoreflect.Name) string {
	switch {
	case message == "PodSpec" && field == "service_account_name":
		return "serviceaccounts"
	case field == "secret_name":
		return "secrets"
	case field == "name" && strings.HasPrefix(string(message), "Secret"):
		return "secrets"
	case field == "name" && strings.HasPrefix(string(message), "ConfigMap"):
		return "configmaps"
	}
	return ""
}

// name reports whether a pod names an object of its namespace.
func (r *references) name(pod []byte, resource, name string) bool {
	found, mirror := false, false
	each(pod, func(number protowire.Number, value []byte) {
		switch number {
		case r.spec:
			found = found || r.root.find(value, resource, name)
		case r.metadata:
			each(value, func(number protowire.Number, entry []byte) {
				mirror = mirror || number == r.annotations && isMirror(entry)
			})
		}
	})
	if resource == "serviceaccounts" && name == "default" {
		found = true // of every pod that names none, and worth nothing by itself
	}
	return found && !mirror
}

func isMirror(entry []byte) bool {
	mirror := false
	each(entry, func(number protowire.Number, value []byte) {
		mirror = mirror || number == 1 && string(value) == MirrorAnnotation
	})
	return mirror
}

func (r *referring) find(raw []byte, resource, name string) bool {
	found := false
	each(raw, func(number protowire.Number, value []byte) {
		switch {
		case found:
		case r.names[number] != "":
			found = r.names[number] == resource && string(value) == name
		case r.inner[number] != nil:
			found = r.inner[number].find(value, resource, name)
		}
	})
	return found
}

// each calls fn with the fields of a stored message that have bytes.
func each(raw []byte, fn func(number protowire.Number, value []byte)) {
	for len(raw) > 0 {
		number, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(number, typ, raw); n < 0 {
			return
		}
		if typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(raw)
			fn(number, value)
		}
		raw = raw[n:]
	}
}

// Refers reports whether a pod's spec names any object of a resource: secrets or configmaps.
func Refers(spec *corev1.PodSpec, resource string) bool {
	raw, err := proto.Marshal(spec)
	if err != nil {
		return true // what cannot be read may name anything
	}
	return referringOf(spec.ProtoReflect().Descriptor(), nil).any(raw, resource)
}

func (r *referring) any(raw []byte, resource string) bool {
	found := false
	each(raw, func(number protowire.Number, value []byte) {
		switch {
		case found:
		case r.names[number] != "":
			found = r.names[number] == resource && len(value) > 0
		case r.inner[number] != nil:
			found = r.inner[number].any(value, resource)
		}
	})
	return found
}
