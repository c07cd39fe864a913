// Package lastapplied keeps on an object the manifest that it was last applied from, so that the next apply can tell
// what its author has taken out from what others have put in. kubectl does the same under the same name.
package lastapplied

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/client/manifest"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Annotation that holds the manifest as JSON.
const Annotation = "kubectl.kubernetes.io/last-applied-configuration"

// With returns a copy of a manifest's object that carries the manifest.
func With(object client.Object) (client.Object, error) {
	desired, _ := proto.Clone(object).(client.Object)
	delete(desired.GetMetadata().GetAnnotations(), Annotation)
	text, err := manifest.ToJSON(desired)
	if err != nil {
		return nil, err
	}
	meta := desired.GetMetadata()
	if meta == nil {
		meta = &metav1.ObjectMeta{}
		m := desired.ProtoReflect()
		m.Set(m.Descriptor().Fields().ByNumber(1), protoreflect.ValueOfMessage(meta.ProtoReflect()))
	}
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[Annotation] = string(text) + "\n"
	return desired, nil
}

// Of reads the manifest that was applied last; nil where there is none, or none that can be read any more.
func Of(live client.Object) proto.Message {
	text := live.GetMetadata().GetAnnotations()[Annotation]
	if text == "" {
		return nil
	}
	last := live.ProtoReflect().New().Interface()
	if err := manifest.FromJSON([]byte(text), last); err != nil {
		return nil
	}
	return last
}
