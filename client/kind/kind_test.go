package kind_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/kind"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func TestBuiltin(t *testing.T) {
	r := kind.Builtin()
	var names []string
	for _, k := range r.All() {
		names = append(names, k.String())
	}
	want := "Deployment.apps ReplicaSet.apps HorizontalPodAutoscaler.autoscaling Component.component Lease.coordination ConfigMap.core Event.core Namespace.core Node.core " +
		"PersistentVolume.core PersistentVolumeClaim.core Pod.core Secret.core Service.core ServiceAccount.core PodDisruptionBudget.policy " +
		"PodGroup.scheduling PriorityClass.scheduling Queue.scheduling Workload.scheduling CSINode.storage StorageClass.storage"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("kinds %s\nwant  %s", got, want)
	}
	pod, ok := r.ByMessage("trireme.core.v1.Pod")
	if !ok || pod.Plural != "pods" || !pod.Namespaced || !pod.HasSpec || !pod.HasStatus || pod.APIVersion() != "v1" ||
		pod.Service == nil || pod.Key("default", "web") != "default/web" {
		t.Errorf("pod %+v", pod)
	}
	if node, ok := r.ByService("trireme.core.v1.NodeService"); !ok || node.Namespaced || node.Key("", "n1") != "n1" {
		t.Errorf("node %+v", node)
	}
	if _, ok := r.ByManifest("apps/v1", "Deployment"); !ok {
		t.Error("no apps/v1 Deployment")
	}
	if _, ok := r.ByManifest("v1", "Deployment"); ok {
		t.Error("a v1 Deployment")
	}
}

func TestResolve(t *testing.T) {
	r := kind.Builtin()
	for name, want := range map[string]string{
		"po": "Pod", "pods": "Pod", "Pod": "Pod", "PODS": "Pod", "pod.core": "Pod", "pods.v1.core": "Pod",
		"deploy": "Deployment", "deploy.apps": "Deployment", "deployments.v1.apps": "Deployment",
		"pc.scheduling.k8s.io": "PriorityClass", "services": "Service", "svc": "Service", "lease.coordination.k8s.io": "Lease",
		"hpa": "HorizontalPodAutoscaler",
	} {
		if k, err := r.Resolve(name); err != nil || k.Name != want {
			t.Errorf("Resolve(%q) = %v, %v; want %s", name, k, err, want)
		}
	}
	for _, name := range []string{"", "pods.apps", "poodles"} {
		if k, err := r.Resolve(name); err == nil {
			t.Errorf("Resolve(%q) = %v", name, k)
		}
	}
}

func TestVersions(t *testing.T) {
	r := kind.Builtin()
	for name, want := range map[string]string{
		"hpa": "trireme.autoscaling.v2", "hpa.autoscaling": "trireme.autoscaling.v2", "hpa.v2.autoscaling": "trireme.autoscaling.v2",
		"hpa.v1.autoscaling": "trireme.autoscaling.v1",
		"pg":                 "trireme.scheduling.v1", "podgroups.scheduling.k8s.io": "trireme.scheduling.v1", "podgroups.scheduling": "trireme.scheduling.v1",
		"podgroups.v1beta1.scheduling.k8s.io":  "trireme.scheduling.v1",
		"podgroups.v1alpha2.scheduling.k8s.io": "trireme.scheduling.v1alpha2",
		// No other version goes by that group.
		"podgroups.scheduling.x-k8s.io":         "trireme.coscheduling.v1alpha1",
		"pgs":                                   "trireme.coscheduling.v1alpha1",
		"PodGroup.v1alpha1.scheduling.x-k8s.io": "trireme.coscheduling.v1alpha1",
	} {
		k, err := r.Resolve(name)
		if err != nil {
			t.Errorf("Resolve(%q): %v", name, err)
			continue
		}
		if got := string(k.Message.Descriptor().FullName().Parent()); got != want {
			t.Errorf("Resolve(%q) = %s; want %s", name, got, want)
		}
	}
	v1, ok := r.ByManifest("autoscaling/v1", "HorizontalPodAutoscaler")
	if !ok {
		t.Fatal("no autoscaling/v1")
	}
	v2, _ := r.ByManifest("autoscaling/v2", "HorizontalPodAutoscaler")
	if v1 == v2 || r.Stored(v1) != v2 || r.Stored(v2) != v2 || v1.StorageVersion != 0 || v2.StorageVersion != 1 {
		t.Errorf("v1 %v is stored as %v", v1, r.Stored(v1))
	}
	var versions []string
	for _, k := range r.Versions(v1) {
		versions = append(versions, k.APIVersion())
	}
	if got := strings.Join(versions, " "); got != "autoscaling/v2 autoscaling/v1" {
		t.Errorf("versions %s", got)
	}
	for _, k := range r.All() {
		if k.StoredAs != "" {
			t.Errorf("%s is in All twice", k)
		}
	}
}

func TestEveryServiceHasTheCommonShape(t *testing.T) {
	// The numbers that generic code relies on.
	shape := func(d protoreflect.MessageDescriptor, fields ...string) {
		t.Helper()
		for i, name := range fields {
			if f := d.Fields().ByNumber(protoreflect.FieldNumber(i + 1)); f == nil || string(f.Name()) != name {
				t.Errorf("%s: field %d is not %s", d.FullName(), i+1, name)
			}
		}
	}
	for _, k := range kind.Builtin().Served() {
		if k.Service == nil {
			t.Errorf("%s has no service", k)
			continue
		}
		for _, verb := range []string{"Create", "Get", "List", "Watch", "Update", "Patch", "Delete", "DeleteCollection", "UpdateStatus"} {
			m := k.Service.Methods().ByName(protoreflect.Name(verb))
			if m == nil {
				if verb != "UpdateStatus" || k.HasStatus {
					t.Errorf("%s has no verb %s", k, verb)
				}
				continue
			}
			switch verb {
			case "Create", "Update", "UpdateStatus":
				shape(m.Input(), "object", "options")
			case "List":
				shape(m.Output(), "metadata", "items")
			case "Watch":
				shape(m.Output(), "events", "revision", "more", "initial_events_end")
				shape(m.Output().Fields().ByNumber(1).Message(), "type", "object")
			}
		}
	}
}

func TestBadKindsAreRefused(t *testing.T) {
	if _, err := kind.New((&metav1.Condition{}).ProtoReflect().Type(), nil); err == nil {
		t.Error("a message that declares no kind is accepted")
	}
	pod := kind.Of((&corev1.Pod{}).ProtoReflect().Type())
	if _, err := kind.New(pod.Message, kind.Of((&corev1.Node{}).ProtoReflect().Type()).Service); err == nil {
		t.Error("another kind's service is accepted")
	}
	if _, err := kind.NewRegistry(pod, pod); err == nil {
		t.Error("a kind is registered twice")
	}
}
