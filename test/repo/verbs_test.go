package repo

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"trireme.dev/client/kind"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	_ "trireme.dev/proto/gen/trireme/device/v1" // services of no kind
	_ "trireme.dev/proto/gen/trireme/node/v1"
)

// ownMethods are the methods beyond the common ones.
func ownMethods() map[string][]string {
	return map[string][]string{"Pod": {"Bind", "Evict", "Logs", "Exec", "PortForward"}}
}

// TestVerbs holds the service of every kind to the shape that generic clients, the gateway's dispatch and its spliced
// bytes rely on: the same verbs with the same messages and field numbers.
func TestVerbs(t *testing.T) {
	kinds := kind.Builtin().Served()
	if len(kinds) < 10 {
		t.Fatalf("%d kinds: this is not the API", len(kinds))
	}
	served := map[protoreflect.FullName]bool{
		// Not of a kind: what node agents and deviced serve.
		"trireme.node.v1.NodeService": true, "trireme.device.v1.DeviceService": true, "trireme.component.v1.StatusService": true,
		// And what is about the store, or about machines that are no nodes yet.
		"trireme.component.v1.MaintenanceService": true, "trireme.node.v1.JoinService": true,
		// And what the scheduler says when it is asked.
		"trireme.scheduling.v1.SchedulerService": true,
	}
	for _, k := range kinds {
		if k.Service == nil {
			t.Errorf("%s has no service", k)
			continue
		}
		served[k.ServiceName] = true
		for _, finding := range verbs(k.Name, k.Message.Descriptor(), k.Service) {
			t.Error(finding)
		}
	}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			if s := f.Services().Get(i); strings.HasPrefix(string(s.FullName()), "trireme.") && !served[s.FullName()] {
				t.Errorf("%s is the service of no kind", s.FullName())
			}
		}
		return true
	})
}

const (
	meta    = "trireme.meta.v1."
	stream  = "stream "
	oneTo   = "repeated "
	options = meta + "WriteOptions"
)

// verbs says how a service differs from the shape that its kind asks for.
func verbs(name string, object protoreflect.MessageDescriptor, service protoreflect.ServiceDescriptor) []string {
	pkg := string(object.ParentFile().Package()) + "."
	self := string(object.FullName())
	want := map[string]string{
		"Create":           pkg + "Create" + name + "Request -> " + self,
		"Get":              meta + "GetRequest -> " + self,
		"List":             meta + "ListRequest -> " + stream + pkg + name + "List",
		"Watch":            meta + "WatchRequest -> " + stream + pkg + name + "WatchResponse",
		"Update":           pkg + "Update" + name + "Request -> " + self,
		"Patch":            meta + "PatchRequest -> " + self,
		"Delete":           meta + "DeleteRequest -> " + self,
		"DeleteCollection": meta + "DeleteCollectionRequest -> " + meta + "DeleteCollectionResponse",
	}
	write := []string{"object = 1 " + self, "options = 2 " + options}
	shapes := map[string][]string{
		"Create" + name + "Request": write,
		"Update" + name + "Request": write,
		name + "List":               {"metadata = 1 " + meta + "ListMeta", "items = 2 " + oneTo + self},
		name + "WatchResponse": {
			"events = 1 " + oneTo + pkg + name + "WatchEvent", "revision = 2 int64", "more = 3 bool", "initial_events_end = 4 bool",
		},
		name + "WatchEvent": {"type = 1 " + meta + "WatchEventType", "object = 2 " + self},
	}
	if object.Fields().ByName("status") != nil {
		want["UpdateStatus"] = pkg + "Update" + name + "StatusRequest -> " + self
		shapes["Update"+name+"StatusRequest"] = write
	}
	if kind.OptionsOf(object).GetScalable() {
		want["GetScale"] = meta + "GetRequest -> " + meta + "Scale"
		want["UpdateScale"] = meta + "UpdateScaleRequest -> " + meta + "Scale"
	}

	var out []string
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		method := string(m.Name())
		signature, ok := want[method]
		delete(want, method)
		switch {
		case !ok && !slices.Contains(ownMethods()[name], method):
			out = append(out, fmt.Sprintf("%s: %s is no verb of every kind", service.FullName(), method))
		case ok && signatureOf(m) != signature:
			out = append(out, fmt.Sprintf("%s: %s is %s, want %s", service.FullName(), method, signatureOf(m), signature))
		}
	}
	for method := range want {
		out = append(out, fmt.Sprintf("%s: has no %s", service.FullName(), method))
	}
	for message, fields := range shapes {
		m := service.ParentFile().Messages().ByName(protoreflect.Name(message))
		if m == nil {
			out = append(out, fmt.Sprintf("%s: has no message %s", service.ParentFile().Path(), message))
			continue
		}
		if got := fieldsOf(m); !slices.Equal(got, fields) {
			out = append(out, fmt.Sprintf("%s: {%s}, want {%s}", m.FullName(), strings.Join(got, "; "), strings.Join(fields, "; ")))
		}
	}
	for field, number := range map[protoreflect.Name]protoreflect.FieldNumber{"metadata": 1, "spec": 2, "status": 3} {
		if f := object.Fields().ByName(field); f == nil && number == 1 || f != nil && f.Number() != number {
			out = append(out, fmt.Sprintf("%s: %s is not field %d", self, field, number))
		}
	}
	slices.Sort(out)
	return out
}

func signatureOf(m protoreflect.MethodDescriptor) string {
	in, out := string(m.Input().FullName()), string(m.Output().FullName())
	if m.IsStreamingClient() {
		in = stream + in
	}
	if m.IsStreamingServer() {
		out = stream + out
	}
	return in + " -> " + out
}

func fieldsOf(m protoreflect.MessageDescriptor) []string {
	var out []string
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		typ := f.Kind().String()
		switch {
		case f.Message() != nil:
			typ = string(f.Message().FullName())
		case f.Enum() != nil:
			typ = string(f.Enum().FullName())
		}
		if f.IsList() {
			typ = oneTo + typ
		}
		out = append(out, fmt.Sprintf("%s = %d %s", f.Name(), f.Number(), typ))
	}
	return out
}

// TestVerbsFinds breaks the service of namespaces in every way that verbs looks for.
func TestVerbsFinds(t *testing.T) {
	object := protodesc.ToFileDescriptorProto(corev1.File_trireme_core_v1_namespace_proto)
	service := protodesc.ToFileDescriptorProto(corev1.File_trireme_core_v1_namespace_service_proto)
	message := func(f *descriptorpb.FileDescriptorProto, name string) *descriptorpb.DescriptorProto {
		i := slices.IndexFunc(f.GetMessageType(), func(m *descriptorpb.DescriptorProto) bool { return m.GetName() == name })
		return f.GetMessageType()[i]
	}
	message(object, "Namespace").Field[1].Number = proto.Int32(7) // spec
	message(service, "CreateNamespaceRequest").Field[1].Number = proto.Int32(3)
	message(service, "NamespaceWatchResponse").Field[1].Type = descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum()
	methods := service.GetService()[0].GetMethod()
	service.GetService()[0].Method = slices.DeleteFunc(methods, func(m *descriptorpb.MethodDescriptorProto) bool {
		switch m.GetName() {
		case "Get":
			m.OutputType = proto.String(".trireme.core.v1.NamespaceList")
		case "List":
			m.ServerStreaming = nil
		case "Patch":
			m.Name = proto.String("Apply")
		}
		return m.GetName() == "Delete"
	})

	files := new(protoregistry.Files)
	var resolve resolver = func(path string) (protoreflect.FileDescriptor, error) { return files.FindFileByPath(path) }
	o := build(t, files, resolve, object)
	s := build(t, files, resolve, service)
	got := verbs("Namespace", o.Messages().ByName("Namespace"), s.Services().Get(0))
	const n = "trireme.core.v1.NamespaceService: "
	want := []string{
		"trireme.core.v1.CreateNamespaceRequest: {object = 1 trireme.core.v1.Namespace; options = 3 trireme.meta.v1.WriteOptions}, " +
			"want {object = 1 trireme.core.v1.Namespace; options = 2 trireme.meta.v1.WriteOptions}",
		"trireme.core.v1.Namespace: spec is not field 2",
		n + "Apply is no verb of every kind",
		n + "Get is trireme.meta.v1.GetRequest -> trireme.core.v1.NamespaceList, want trireme.meta.v1.GetRequest -> trireme.core.v1.Namespace",
		n + "List is trireme.meta.v1.ListRequest -> trireme.core.v1.NamespaceList, " +
			"want trireme.meta.v1.ListRequest -> stream trireme.core.v1.NamespaceList",
		n + "has no Delete",
		n + "has no Patch",
		"trireme.core.v1.NamespaceWatchResponse: {events = 1 repeated trireme.core.v1.NamespaceWatchEvent; revision = 2 int32; more = 3 bool; " +
			"initial_events_end = 4 bool}, want {events = 1 repeated trireme.core.v1.NamespaceWatchEvent; revision = 2 int64; more = 3 bool; " +
			"initial_events_end = 4 bool}",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// resolver finds what a file imports: among the broken files first.
type resolver func(path string) (protoreflect.FileDescriptor, error)

// FindFileByPath implements protodesc.Resolver.
func (r resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := r(path); err == nil {
		return f, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (r resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

func build(t *testing.T, files *protoregistry.Files, r resolver, f *descriptorpb.FileDescriptorProto) protoreflect.FileDescriptor {
	t.Helper()
	fd, err := protodesc.NewFile(f, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.RegisterFile(fd); err != nil {
		t.Fatal(err)
	}
	return fd
}
