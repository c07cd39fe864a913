// Package kind knows what kinds there are: each is a protobuf message that carries trireme.meta.v1.kind, with the
// service of its verbs beside it. Everything generic (gateway, client, manifests, CLI) asks here and has no list of
// its own.
//
// It never talks to anyone and holds no state of objects.
package kind

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Kind describes one kind. It is immutable.
type Kind struct {
	// Group and Version are Trireme's own: core, v1.
	Group, Version string
	// Name is the kind as manifests write it: Pod.
	Name string
	// Plural in lower case: pods.
	Plural string
	// Namespaced says whether objects live in a namespace.
	Namespaced bool
	// ShortNames that the CLI accepts: po.
	ShortNames []string
	// APIVersions that manifests may use; the first is printed.
	APIVersions []string
	// HasSpec and HasStatus say whether the message has the field.
	HasSpec, HasStatus bool
	// Options as the message declares them.
	Options *metav1.KindOptions
	// Message makes objects of the kind.
	Message protoreflect.MessageType
	// ServiceName of the verbs: trireme.core.v1.PodService.
	ServiceName protoreflect.FullName
	// Service describes the verbs; nil where no such service is known.
	Service protoreflect.ServiceDescriptor
	// StoredAs is the message of the version that objects are stored in, where that is not this one; else empty.
	StoredAs protoreflect.FullName
	// StorageVersion is the form in which values of the kind are written; 0 where it is not stored itself.
	StorageVersion byte
}

// New reads a kind from its message. service may be nil, and then the kind has no verbs. The error is about a message
// that declares no kind, or declares it badly.
func New(message protoreflect.MessageType, service protoreflect.ServiceDescriptor) (*Kind, error) {
	d := message.Descriptor()
	options := OptionsOf(d)
	switch {
	case options == nil:
		return nil, fmt.Errorf("message %s declares no kind", d.FullName())
	case options.GetKind() == "" || options.GetPlural() == "" || options.GetGroup() == "" || options.GetVersion() == "":
		return nil, fmt.Errorf("message %s: a kind needs group, version, kind and plural", d.FullName())
	case options.GetScope() == metav1.Scope_SCOPE_UNSPECIFIED:
		return nil, fmt.Errorf("message %s: a kind needs a scope", d.FullName())
	case len(options.GetApiVersions()) == 0:
		return nil, fmt.Errorf("message %s: a kind needs api_versions", d.FullName())
	}
	if f := d.Fields().ByNumber(1); f == nil || f.Message() == nil || f.Message().FullName() != metadataName {
		return nil, fmt.Errorf("message %s: field 1 must be %s", d.FullName(), metadataName)
	}
	k := &Kind{
		Group: options.GetGroup(), Version: options.GetVersion(), Name: options.GetKind(), Plural: options.GetPlural(),
		Namespaced: options.GetScope() == metav1.Scope_SCOPE_NAMESPACED,
		ShortNames: options.GetShortNames(), APIVersions: options.GetApiVersions(),
		HasSpec: d.Fields().ByName("spec") != nil, HasStatus: d.Fields().ByName("status") != nil,
		Options: options, Message: message, Service: service,
		ServiceName: ServiceNameOf(d), StoredAs: protoreflect.FullName(options.GetStoredAs()),
	}
	switch version := options.GetStorageVersion(); {
	case k.StoredAs != "" && version != 0:
		return nil, fmt.Errorf("message %s: a kind that is stored as another has no storage_version", d.FullName())
	case version > math.MaxUint8:
		return nil, fmt.Errorf("message %s: storage_version %d does not fit into a byte", d.FullName(), version)
	case k.StoredAs == "":
		k.StorageVersion = max(byte(version), 1)
	}
	if service != nil && service.FullName() != k.ServiceName {
		return nil, fmt.Errorf("message %s: its service is %s, not %s", d.FullName(), k.ServiceName, service.FullName())
	}
	return k, nil
}

const metadataName protoreflect.FullName = "trireme.meta.v1.ObjectMeta"

// ServiceNameOf gives the name of the service that serves a message's verbs.
func ServiceNameOf(d protoreflect.MessageDescriptor) protoreflect.FullName {
	return d.FullName() + "Service"
}

// OptionsOf returns the kind that a message declares, or nil.
func OptionsOf(d protoreflect.MessageDescriptor) *metav1.KindOptions {
	if d.Options() == nil || !proto.HasExtension(d.Options(), metav1.E_Kind) {
		return nil
	}
	options, _ := proto.GetExtension(d.Options(), metav1.E_Kind).(*metav1.KindOptions)
	return options
}

// APIVersion is the one that is printed: apps/v1.
func (k *Kind) APIVersion() string { return k.APIVersions[0] }

// Key names an object of the kind as errors and logs do: "namespace/name", or "name" where the kind has no namespaces.
func (k *Kind) Key(namespace, name string) string {
	if !k.Namespaced || namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// String gives "Pod.core".
func (k *Kind) String() string { return k.Name + "." + k.Group }
