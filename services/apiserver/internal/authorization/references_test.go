package authorization

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func paths(r *referring, d protoreflect.MessageDescriptor, prefix string) []string {
	var out []string
	for number, resource := range r.names {
		out = append(out, prefix+d.Fields().ByNumber(number).JSONName()+" "+resource)
	}
	for number, inner := range r.inner {
		fd := d.Fields().ByNumber(number)
		out = append(out, paths(inner, fd.Message(), prefix+fd.JSONName()+".")...)
	}
	return out
}

// Everything in a pod that names an object which its node then may read. A new line is a new thing that nodes see.
func TestWhatAPodNames(t *testing.T) {
	r, err := podReferences()
	if err != nil {
		t.Fatal(err)
	}
	got := paths(r.root, (&corev1.PodSpec{}).ProtoReflect().Descriptor(), "")
	slices.Sort(got)
	var want []string
	for _, c := range []string{"containers.", "ephemeralContainers.", "initContainers."} {
		want = append(want, c+"env.valueFrom.configMapKeyRef.name configmaps", c+"env.valueFrom.secretKeyRef.name secrets",
			c+"envFrom.configMapRef.name configmaps", c+"envFrom.secretRef.name secrets")
	}
	want = append(want, "imagePullSecrets.name secrets", "serviceAccountName serviceaccounts",
		"volumes.azureFile.secretName secrets", "volumes.cephfs.secretRef.name secrets", "volumes.cinder.secretRef.name secrets",
		"volumes.configMap.name configmaps", "volumes.csi.nodePublishSecretRef.name secrets", "volumes.flexVolume.secretRef.name secrets",
		"volumes.iscsi.secretRef.name secrets", "volumes.projected.sources.configMap.name configmaps",
		"volumes.projected.sources.secret.name secrets", "volumes.rbd.secretRef.name secrets", "volumes.scaleIO.secretRef.name secrets",
		"volumes.secret.secretName secrets", "volumes.storageos.secretRef.name secrets")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("a pod names\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNamesInPods(t *testing.T) {
	r, err := podReferences()
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "sec"}, Spec: &corev1.PodSpec{
		NodeName:         proto.String("sec"),
		ImagePullSecrets: []*corev1.LocalObjectReference{{Name: proto.String("pull")}},
		Containers:       []*corev1.Container{{Name: "sec", Image: "sec"}},
		Volumes:          []*corev1.Volume{{Name: "sec", Secret: &corev1.SecretVolumeSource{SecretName: "vol"}}},
	}}
	find := func(resource, name string) bool {
		raw, err := proto.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		return r.name(raw, resource, name)
	}
	for name, want := range map[string]bool{"pull": true, "vol": true, "sec": false, "": false} {
		if got := find("secrets", name); got != want {
			t.Errorf("secret %q: %v", name, got)
		}
	}
	if find("configmaps", "vol") || !find("serviceaccounts", "default") || find("serviceaccounts", "x") {
		t.Error("resources are mixed up")
	}
	if !Refers(pod.GetSpec(), "secrets") || Refers(pod.GetSpec(), "configmaps") {
		t.Error("Refers")
	}
	// What an agent made up itself opens nothing.
	pod.Metadata.Annotations = map[string]string{MirrorAnnotation: "x"}
	if find("secrets", "vol") {
		t.Error("a mirror pod opens a secret")
	}
}

func BenchmarkNames(b *testing.B) {
	r, err := podReferences()
	if err != nil {
		b.Fatal(err)
	}
	raw, err := proto.Marshal(&corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: &corev1.PodSpec{
		Containers: []*corev1.Container{{Name: "c", Image: "i:1", Env: []*corev1.EnvVar{{Name: "a", Value: proto.String("b")}}}},
		Volumes:    []*corev1.Volume{{Name: "v", Secret: &corev1.SecretVolumeSource{SecretName: "vol"}}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.name(raw, "secrets", "other")
	}
}
