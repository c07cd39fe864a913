package manifest_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"trireme.dev/client"
	"trireme.dev/client/kind"
)

type clientObject = client.Object

const widget = `
name: "widget.proto" package: "example.v1" syntax: "proto3"
dependency: ["google/protobuf/struct.proto", "google/protobuf/timestamp.proto", "trireme/meta/v1/meta.proto", "trireme/meta/v1/options.proto"]
message_type {
  name: "Widget"
  field {name: "metadata" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".trireme.meta.v1.ObjectMeta"}
  field {name: "spec" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".example.v1.Spec"}
  options {
    [trireme.meta.v1.kind] {
      group: "example" version: "v1" kind: "Widget" plural: "widgets" scope: SCOPE_CLUSTER api_versions: "example.com/v1"
    }
  }
}
message_type {
  name: "Spec"
  field {name: "size" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING}
  field {name: "since" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp"
    options {[trireme.meta.v1.field] {format: FORMAT_MICRO_TIME}}}
  field {name: "any" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Struct"}
  field {name: "limits" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".example.v1.Spec.LimitsEntry"
    options {[trireme.meta.v1.field] {format: FORMAT_QUANTITY}}}
  field {name: "data" number: 5 label: LABEL_OPTIONAL type: TYPE_BYTES}
  nested_type {
    name: "LimitsEntry" options {map_entry: true}
    field {name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING}
    field {name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING}
  }
}`

// dynamicRegistry has one kind, without generated code.
func dynamicRegistry(t *testing.T) *kind.Registry {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal([]byte(widget), file); err != nil {
		t.Fatal(err)
	}
	d, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kind.New(dynamicpb.NewMessageType(d.Messages().ByName("Widget")), nil)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := kind.NewRegistry(k)
	if err != nil {
		t.Fatal(err)
	}
	return registry
}
