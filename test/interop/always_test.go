package interop

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// TestAlwaysPrinted holds that a field which Kubernetes prints even when it is empty (ready: false, restartCount: 0) is
// printed by us too, since scripts read it, and no other. Required fields are never empty; null is never printed.
func TestAlwaysPrinted(t *testing.T) {
	scheme := kubernetesScheme(t)
	checked := 0
	for _, p := range pairs(t) {
		seen := map[reflect.Type]bool{}
		var walk func(path string, goType reflect.Type, message protoreflect.MessageDescriptor)
		walk = func(path string, goType reflect.Type, message protoreflect.MessageDescriptor) {
			if seen[goType] {
				return
			}
			seen[goType] = true
			for name, f := range jsonFields(goType) {
				fd := message.Fields().ByJSONName(name)
				if fd == nil {
					continue
				}
				here := strings.TrimPrefix(path+"."+name, ".")
				if inner, ok := structBehind(f.goType); ok {
					if behind := messageBehind(fd); behind != nil {
						walk(here, inner, behind)
					}
				}
				switch f.goType.Kind() {
				case reflect.Pointer, reflect.Slice, reflect.Map:
					continue
				case reflect.Struct:
					// An empty {} of a struct tells scripts nothing; where we print one is a matter of taste.
					continue
				}
				options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
				if f.always && !options.GetPrintedWhenEmpty() && !options.GetRequired() {
					t.Errorf("%s: %s: Kubernetes prints it when it is empty; set printed_when_empty (%s)", p, here, fd.FullName())
				}
				if !f.always && options.GetPrintedWhenEmpty() {
					t.Errorf("%s: %s: Kubernetes does not print it when it is empty (%s)", p, here, fd.FullName())
				}
				checked++
			}
		}
		walk("", reflect.TypeOf(p.fresh(t, scheme)).Elem(), p.kind.Message.Descriptor())
	}
	if checked < 500 {
		t.Errorf("only %d fields were looked at", checked)
	}
}
