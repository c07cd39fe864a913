package request_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/apiserver/internal/request"
)

// what of attributes a request says.
type said struct{ Namespace, Name, FieldSelector, LabelSelector, Subresource string }

func read(t *testing.T, m proto.Message, raw []byte) (said, error) {
	t.Helper()
	method := &request.Method{}
	method.Reads(m.ProtoReflect().Descriptor())
	a := &request.Attributes{Method: method}
	err := a.Read(raw)
	return said{a.Namespace, a.Name, a.FieldSelector, a.LabelSelector, a.Subresource}, err
}

func TestAttributesOfRequests(t *testing.T) {
	meta := &metav1.ObjectMeta{Namespace: "ns", Name: "n", Labels: map[string]string{"name": "no"}}
	for name, tt := range map[string]struct {
		req  proto.Message
		want said
	}{
		"get":    {&metav1.GetRequest{Namespace: "ns", Name: "n"}, said{Namespace: "ns", Name: "n"}},
		"list":   {&metav1.ListRequest{Namespace: "ns", FieldSelector: "a=b", LabelSelector: "c=d"}, said{Namespace: "ns", FieldSelector: "a=b", LabelSelector: "c=d"}},
		"watch":  {&metav1.WatchRequest{FieldSelector: "a=b"}, said{FieldSelector: "a=b"}},
		"delete": {&metav1.DeleteRequest{Namespace: "ns", Name: "n", Options: &metav1.DeleteOptions{DryRun: true}}, said{Namespace: "ns", Name: "n"}},
		"patch":  {&metav1.PatchRequest{Namespace: "ns", Name: "n", Subresource: "status", Patch: []byte("{}")}, said{Namespace: "ns", Name: "n", Subresource: "status"}},
		"create": {&corev1.CreatePodRequest{Object: &corev1.Pod{Metadata: meta, Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c"}}}}}, said{Namespace: "ns", Name: "n"}},
		"update": {&corev1.UpdateSecretRequest{Object: &corev1.Secret{Metadata: meta}, Options: &metav1.WriteOptions{FieldManager: "m"}}, said{Namespace: "ns", Name: "n"}},
		"scale":  {&metav1.UpdateScaleRequest{Scale: &metav1.Scale{Metadata: meta}}, said{Namespace: "ns", Name: "n"}},
		"exec":   {&corev1.ExecRequest{Message: &corev1.ExecRequest_Start{Start: &corev1.ExecStart{Namespace: "ns", Name: "n"}}}, said{Namespace: "ns", Name: "n"}},
		"logs":   {&corev1.LogsRequest{Namespace: "ns", Name: "n"}, said{Namespace: "ns", Name: "n"}},
		"evict":  {&corev1.EvictRequest{Namespace: "ns", Name: "n"}, said{Namespace: "ns", Name: "n"}},
		"load":   {&nodev1.LoadImageRequest{NodeName: "n", Chunk: []byte("x")}, said{Name: "n"}},
		"bind":   {&corev1.BindRequest{Groups: []*corev1.BindGroup{{Bindings: []*corev1.Binding{{Namespace: "ns"}}}}}, said{}},
	} {
		raw, err := proto.Marshal(tt.req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(t, tt.req, raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Whoever asks must not get past by saying a thing twice: what counts is what the object will be.
func TestAttributesAreWhatTheHandlerDecodes(t *testing.T) {
	raw := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	secret := func(namespace, name string) []byte {
		return raw(&corev1.UpdateSecretRequest{Object: &corev1.Secret{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name}}})
	}
	for name, b := range map[string][]byte{
		"twice":             append(secret("ns", "mine"), secret("other", "theirs")...),
		"half of it again":  append(secret("ns", "mine"), secret("", "theirs")...),
		"an empty one last": append(secret("ns", "mine"), secret("", "")...),
		"another wire type": append(secret("ns", "mine"), protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)...),
	} {
		decoded := &corev1.UpdateSecretRequest{}
		if err := proto.Unmarshal(b, decoded); err != nil {
			t.Fatal(err)
		}
		got, err := read(t, decoded, b)
		want := said{Namespace: decoded.GetObject().GetMetadata().GetNamespace(), Name: decoded.GetObject().GetMetadata().GetName()}
		if err != nil || got != want {
			t.Errorf("%s: %+v %v, the handler sees %+v", name, got, err, want)
		}
	}
	for _, b := range [][]byte{{0xff}, {0x0a, 0x05, 'x'}, secret("ns", "n")[:6]} {
		if _, err := read(t, &corev1.UpdateSecretRequest{}, b); !apierr.IsInvalid(err) {
			t.Errorf("%x: %v, want invalid", b, err)
		}
	}
}

func TestWhichNodeACallerIs(t *testing.T) {
	nodes := []string{request.GroupNodes}
	for _, tt := range []struct {
		caller rpc.Caller
		name   string
		want   bool
	}{
		{rpc.Caller{User: "system:node:a", Groups: nodes}, "a", true},
		{rpc.Caller{User: "system:node:a", Groups: nodes}, "b", false},
		{rpc.Caller{User: "system:node:a", Groups: nodes}, "", false},
		{rpc.Caller{User: "system:node:", Groups: nodes}, "", false},
		{rpc.Caller{User: "system:node:a"}, "a", false},
		{rpc.Caller{User: "a", Groups: nodes}, "a", false},
		{rpc.Caller{User: "system:node:a", Groups: nodes, DNSNames: []string{"a", "a-0", "b"}}, "a-0", true},
		{rpc.Caller{User: "system:node:a", Groups: nodes, DNSNames: []string{"a", "a-0", "b"}}, "a-1", false},
		{rpc.Caller{User: "system:node:a", Groups: nodes, DNSNames: []string{"a", "a-0", "b"}}, "b", false},
		{rpc.Caller{User: "system:node:a", Groups: nodes, DNSNames: []string{"a-x", "a-"}}, "a-x", false},
		{rpc.Caller{User: "system:node:a", Groups: nodes, DNSNames: []string{"a-"}}, "a-", false},
	} {
		if got := request.IsNode(tt.caller, tt.name); got != tt.want {
			t.Errorf("%+v is %q: %v", tt.caller, tt.name, got)
		}
	}
}
