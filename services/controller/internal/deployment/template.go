package deployment

import (
	"fmt"
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	// hashLabel tells the pods of a Deployment's ReplicaSets apart.
	hashLabel = "pod-template-hash"
	// revisionAnnotation numbers the templates that a Deployment has had.
	revisionAnnotation = "deployment.kubernetes.io/revision"
	// desiredAnnotation remembers on a ReplicaSet how many replicas the Deployment wanted when it was last scaled.
	desiredAnnotation = "deployment.kubernetes.io/desired-replicas"
	// maxAnnotation remembers the surge above that.
	maxAnnotation = "deployment.kubernetes.io/max-replicas"
)

// alphabet of hashes: no vowels, so that no words come out, and no characters that are easily mistaken; Kubernetes'.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

// hashOf names a template. Two templates of one hash are told apart by collisions, which the Deployment's status
// counts. The hash is for names only: whether templates are the same is decided by comparing them.
func hashOf(template *corev1.PodTemplateSpec, collisions int32) (string, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(template)
	if err != nil {
		return "", fmt.Errorf("hash of the pod template: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write(text) // never fails
	if collisions > 0 {
		_, _ = fmt.Fprint(h, collisions)
	}
	sum := h.Sum64()
	name := make([]byte, 10)
	for i := range name {
		name[i] = alphabet[sum%uint64(len(alphabet))]
		sum /= uint64(len(alphabet))
	}
	return string(name), nil
}

// sameTemplate tells whether a ReplicaSet was made from the Deployment's template as it is now.
func sameTemplate(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	return proto.Equal(withoutHash(d.GetSpec().GetTemplate()), withoutHash(rs.GetSpec().GetTemplate()))
}

func withoutHash(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	t := proto.CloneOf(template)
	if t.GetMetadata() == nil {
		t.Metadata = &metav1.ObjectMeta{}
	}
	delete(t.Metadata.Labels, hashLabel)
	if len(t.Metadata.Labels) == 0 {
		t.Metadata.Labels = nil
	}
	// The gateway may set these on what it stores.
	t.Metadata.CreationTimestamp = nil
	return t
}

// newSet is the ReplicaSet of the Deployment's present template, without replicas.
func newSet(d *appsv1.Deployment, revision int64) (*appsv1.ReplicaSet, error) {
	hash, err := hashOf(d.GetSpec().GetTemplate(), d.GetStatus().GetCollisionCount())
	if err != nil {
		return nil, err
	}
	template := proto.CloneOf(d.GetSpec().GetTemplate())
	if template.Metadata == nil {
		template.Metadata = &metav1.ObjectMeta{}
	}
	template.Metadata.Labels = with(template.Metadata.Labels, hashLabel, hash)
	selector := proto.CloneOf(d.GetSpec().GetSelector())
	selector.MatchLabels = with(selector.GetMatchLabels(), hashLabel, hash)
	annotations := map[string]string{}
	for k, v := range d.GetMetadata().GetAnnotations() {
		if !ownAnnotation(k) {
			annotations[k] = v
		}
	}
	annotations[revisionAnnotation] = fmt.Sprint(revision)
	return &appsv1.ReplicaSet{
		Metadata: &metav1.ObjectMeta{
			Name:        d.GetMetadata().GetName() + "-" + hash,
			Namespace:   d.GetMetadata().GetNamespace(),
			Labels:      with(d.GetSpec().GetTemplate().GetMetadata().GetLabels(), hashLabel, hash),
			Annotations: annotations,
			OwnerReferences: []*metav1.OwnerReference{{
				ApiVersion: "apps/v1", Kind: "Deployment",
				Name: d.GetMetadata().GetName(), Uid: d.GetMetadata().GetUid(),
				Controller: proto.Bool(true), BlockOwnerDeletion: proto.Bool(true),
			}},
		},
		Spec: &appsv1.ReplicaSetSpec{
			Replicas:        proto.Int32(0),
			MinReadySeconds: d.GetSpec().MinReadySeconds,
			Selector:        selector,
			Template:        template,
		},
	}, nil
}

// ownAnnotation tells of annotations that are about one object and are not copied to those made from it.
func ownAnnotation(key string) bool {
	switch key {
	case revisionAnnotation, desiredAnnotation, maxAnnotation, "kubectl.kubernetes.io/last-applied-configuration":
		return true
	}
	return false
}

func with(labels map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	for k, v := range labels {
		if k != key {
			out[k] = v
		}
	}
	return out
}
