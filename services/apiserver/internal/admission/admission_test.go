package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/kit/rpc"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/request"
)

func by(user string, groups ...string) context.Context {
	return request.With(context.Background(), &request.Attributes{
		Method: &request.Method{Verb: request.Update}, Caller: rpc.Caller{User: user, Groups: groups, DNSNames: []string{"a", "a-0"}},
	})
}

func kindOf(t *testing.T, name string) *kind.Kind {
	t.Helper()
	for _, k := range kind.Builtin().All() {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return nil
}

func TestPluginsInOrder(t *testing.T) {
	var names []string
	for _, p := range plugins(Deps{}) {
		names = append(names, p.name)
	}
	want := []string{"NamespaceLifecycle", "CreateByApply", "NodeRestriction", "Priority", "DefaultTolerationSeconds"}
	if !slices.Equal(names, want) {
		t.Errorf("plugins %v, want %v", names, want)
	}
}

// All changing comes before all judging, each in the order of the list, and a refusal ends it.
func TestChangingComesBeforeJudging(t *testing.T) {
	var asked []string
	say := func(name string, err error) func(context.Context, registry.Write) error {
		return func(context.Context, registry.Write) error { asked = append(asked, name); return err }
	}
	refusal := errors.New("no")
	admit := chain([]plugin{
		{name: "a", handles: on(creating), validate: say("a judges", nil)},
		{name: "b", handles: on(creating, deleting), mutate: say("b changes", nil), validate: say("b judges", refusal)},
		{name: "c", handles: on(creating), mutate: say("c changes", nil), validate: say("c judges", nil)},
	})
	w := registry.Write{Operation: registry.Create}
	if err := admit(by("x"), w); !errors.Is(err, refusal) || !strings.Contains(err.Error(), "admission b") {
		t.Errorf("refused with %v", err)
	}
	if want := []string{"b changes", "c changes", "a judges", "b judges"}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	asked = nil
	if err := admit(by("x"), registry.Write{Operation: registry.Update, Subresource: registry.Status}); err != nil || asked != nil {
		t.Errorf("a status: %v, asked %v", err, asked)
	}
	if err := admit(context.Background(), w); !apierr.IsInternal(err) {
		t.Errorf("a write by nobody: %v", err)
	}
}

func TestNodeRestriction(t *testing.T) {
	pod := func(node string, edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "p"},
			Spec:     &corev1.PodSpec{NodeName: proto.String(node), Containers: []*corev1.Container{{Name: "c"}}},
		}
		if edit != nil {
			edit(p)
		}
		return p
	}
	mirror := func(edit func(*corev1.Pod)) *corev1.Pod {
		return pod("a", func(p *corev1.Pod) {
			p.Metadata.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
			p.Metadata.OwnerReferences = []*metav1.OwnerReference{{ApiVersion: "v1", Kind: "Node", Name: "a", Uid: "1", Controller: proto.Bool(true)}}
			if edit != nil {
				edit(p)
			}
		})
	}
	node := func(name string, labels map[string]string, edit func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: labels}, Spec: &corev1.NodeSpec{}}
		if edit != nil {
			edit(n)
		}
		return n
	}
	tainted := func(n *corev1.Node) { n.Spec.Taints = []*corev1.Taint{{Key: "k", Effect: "NoExecute"}} }
	lease := func(namespace, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	event := func(host string) *corev1.Event {
		return &corev1.Event{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "e"}, Source: &corev1.EventSource{Host: proto.String(host)}}
	}
	const status = registry.Status
	for _, tt := range []struct {
		name, kind string
		write      registry.Write
		refused    string // part of the reason; empty where it is allowed
	}{
		{"status of own pod", "Pod", registry.Write{Operation: registry.Update, Subresource: status, Object: pod("a", nil), Old: pod("a", nil)}, ""},
		{"status of a pod of its second node", "Pod", registry.Write{Operation: registry.Update, Subresource: status, Object: pod("a-0", nil), Old: pod("a-0", nil)}, ""},
		{"status of another's pod", "Pod", registry.Write{Operation: registry.Update, Subresource: status, Object: pod("b", nil), Old: pod("b", nil)}, "can only update pod status"},
		{"status of a pod nowhere", "Pod", registry.Write{Operation: registry.Update, Subresource: status, Object: pod("", nil), Old: pod("", nil)}, "can only update pod status"},
		{"own pod", "Pod", registry.Write{Operation: registry.Update, Object: pod("a", nil), Old: pod("a", nil)}, "not the pod"},
		{"delete own pod", "Pod", registry.Write{Operation: registry.Delete, Old: pod("a", nil)}, ""},
		{"delete another's pod", "Pod", registry.Write{Operation: registry.Delete, Old: pod("b", nil)}, "can only delete pods"},
		{"a pod", "Pod", registry.Write{Object: pod("a", nil)}, "can only create mirror pods"},
		{"a mirror pod", "Pod", registry.Write{Object: mirror(nil)}, ""},
		{"a mirror pod of another", "Pod", registry.Write{Object: mirror(func(p *corev1.Pod) { p.Spec.NodeName = proto.String("b") })}, "spec.nodeName set to itself"},
		{"a mirror pod of nobody", "Pod", registry.Write{Object: mirror(func(p *corev1.Pod) { p.Metadata.OwnerReferences = nil })}, "one owner reference"},
		{"a mirror pod of a ReplicaSet", "Pod", registry.Write{Object: mirror(func(p *corev1.Pod) { p.Metadata.OwnerReferences[0].Kind = "ReplicaSet" })}, "owner reference set to itself"},
		{"a mirror pod with a secret", "Pod", registry.Write{Object: mirror(func(p *corev1.Pod) {
			p.Spec.Volumes = []*corev1.Volume{{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}
		})}, "reference secrets"},
		{"a mirror pod with a map", "Pod", registry.Write{Object: mirror(func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []*corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{Name: "m"}}}
		})}, "reference configmaps"},
		{"a mirror pod with an account", "Pod", registry.Write{Object: mirror(func(p *corev1.Pod) { p.Spec.ServiceAccountName = proto.String("s") })}, "service account"},

		{"itself", "Node", registry.Write{Object: node("a", map[string]string{"kubernetes.io/hostname": "a", "topology.kubernetes.io/zone": "z", "rack": "7"}, tainted)}, ""},
		{"its second node", "Node", registry.Write{Object: node("a-0", nil, nil)}, ""},
		{"another node", "Node", registry.Write{Object: node("b", nil, nil)}, `node "a" is not allowed to modify node "b"`},
		{"itself with a restricted label", "Node", registry.Write{Object: node("a", map[string]string{"x.node-restriction.kubernetes.io/y": ""}, nil)}, "x.node-restriction.kubernetes.io/y"},
		{"itself with a role", "Node", registry.Write{Object: node("a", map[string]string{"node-role.kubernetes.io/control-plane": ""}, nil)}, "node-role"},
		{"labels of its own", "Node", registry.Write{Operation: registry.Update, Object: node("a", map[string]string{"kubelet.kubernetes.io/x": "", "example.com/y": ""}, nil), Old: node("a", nil, nil)}, ""},
		{"a label that administrators set, kept", "Node", registry.Write{Operation: registry.Update, Object: node("a", map[string]string{"node-restriction.kubernetes.io/x": "1", "y": "2"}, nil), Old: node("a", map[string]string{"node-restriction.kubernetes.io/x": "1"}, nil)}, ""},
		{"a label that administrators set, dropped", "Node", registry.Write{Operation: registry.Update, Object: node("a", nil, nil), Old: node("a", map[string]string{"node-restriction.kubernetes.io/x": "1"}, nil)}, "modify labels: node-restriction.kubernetes.io/x"},
		{"a label of its status", "Node", registry.Write{Operation: registry.Update, Subresource: status, Object: node("a", map[string]string{"k8s.io/x": ""}, nil), Old: node("a", nil, nil)}, "modify labels: k8s.io/x"},
		{"a taint", "Node", registry.Write{Operation: registry.Update, Object: node("a", nil, tainted), Old: node("a", nil, nil)}, "modify taints"},
		{"a taint less", "Node", registry.Write{Operation: registry.Update, Object: node("a", nil, nil), Old: node("a", nil, tainted)}, "modify taints"},
		{"delete itself", "Node", registry.Write{Operation: registry.Delete, Old: node("a", nil, nil)}, "may delete"},

		{"own lease", "Lease", registry.Write{Object: lease("kube-node-lease", "a")}, ""},
		{"another's lease", "Lease", registry.Write{Object: lease("kube-node-lease", "b")}, "name of the node"},
		{"a generated lease", "Lease", registry.Write{Object: lease("kube-node-lease", "")}, "name of the node"},
		{"a leader's lease", "Lease", registry.Write{Object: lease("kube-system", "a")}, "kube-node-lease"},
		{"own event", "Event", registry.Write{Object: event("a")}, ""},
		{"another's event", "Event", registry.Write{Object: event("b")}, "source.host"},
		{"an event made its own", "Event", registry.Write{Operation: registry.Update, Object: event("a"), Old: event("b")}, "source.host"},
		{"what authorization has let through", "ConfigMap", registry.Write{Object: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: "x"}}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.write.Kind = kindOf(t, tt.kind)
			err := nodeRestriction(by("system:node:a", request.GroupNodes), tt.write)
			switch {
			case tt.refused == "" && err != nil:
				t.Error(err)
			case tt.refused != "" && (!apierr.IsForbidden(err) || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("%v, want forbidden: %s", err, tt.refused)
			}
			if err := nodeRestriction(by("admin", request.GroupMasters), tt.write); err != nil {
				t.Errorf("of an administrator: %v", err)
			}
		})
	}
}

func TestNamespacesThatStay(t *testing.T) {
	k := kindOf(t, "Namespace")
	for name, stays := range map[string]bool{"default": true, "kube-system": true, "kube-public": true, "kube-node-lease": false, "x": false} {
		err := namespaceLifecycle(t.Context(), nil, registry.Write{
			Kind: k, Operation: registry.Delete, Old: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: name}},
		})
		if apierr.IsForbidden(err) != stays {
			t.Errorf("delete %s: %v", name, err)
		}
	}
}
