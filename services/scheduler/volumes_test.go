package scheduler

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
)

// storage makes a class that waits, and the volumes of it that are on nodes, one each.
func (c *cluster) storage(nodes ...string) {
	c.t.Helper()
	if _, err := client.For[*storagev1.StorageClass](c.conn).Create(c.ctx, &storagev1.StorageClass{
		Metadata: &metav1.ObjectMeta{Name: "local"}, Provisioner: volume.NoProvisioner, VolumeBindingMode: proto.String("WaitForFirstConsumer"),
	}); err != nil {
		c.t.Fatal(err)
	}
	volumes := client.For[*corev1.PersistentVolume](c.conn)
	for _, node := range nodes {
		v, err := volumes.Create(c.ctx, &corev1.PersistentVolume{
			Metadata: &metav1.ObjectMeta{Name: "on-" + node},
			Spec: &corev1.PersistentVolumeSpec{
				Capacity: map[string]string{"storage": "1Gi"}, AccessModes: []string{"ReadWriteOnce"}, StorageClassName: proto.String("local"),
				Local: &corev1.LocalVolumeSource{Path: "/data"},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []*corev1.NodeSelectorTerm{{
					MatchFields: []*corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{node}}},
				}}}},
			},
		})
		if err != nil {
			c.t.Fatal(err)
		}
		v.Status = &corev1.PersistentVolumeStatus{Phase: proto.String("Available")}
		if _, err := volumes.UpdateStatus(c.ctx, v); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) claim(name string) {
	c.t.Helper()
	if _, err := client.For[*corev1.PersistentVolumeClaim](c.conn).Create(c.ctx, &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{"ReadWriteOnce"}, StorageClassName: proto.String("local"),
			Resources: &corev1.VolumeResourceRequirements{Requests: map[string]string{"storage": "1Gi"}},
		},
	}); err != nil {
		c.t.Fatal(err)
	}
}

// bindClaims does what the volume controller does with volumes that have a claim, until the test ends.
func (c *cluster) bindClaims() {
	c.t.Helper()
	volumes, claims := client.For[*corev1.PersistentVolume](c.conn), client.For[*corev1.PersistentVolumeClaim](c.conn)
	w, err := volumes.Watch(c.ctx, client.WatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	c.t.Cleanup(func() { w.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			response, err := w.Recv()
			if err != nil {
				return
			}
			for _, e := range response.Events {
				ref := e.Object.GetSpec().GetClaimRef()
				if ref == nil {
					continue
				}
				claim, err := claims.Get(c.ctx, ref.GetNamespace(), ref.GetName())
				if err != nil || volume.Bound(claim) {
					continue
				}
				claim.Spec.VolumeName = proto.String(e.Object.GetMetadata().GetName())
				if claim, err = claims.Update(c.ctx, claim); err == nil {
					claim.Status = &corev1.PersistentVolumeClaimStatus{Phase: proto.String("Bound")}
					_, err = claims.UpdateStatus(c.ctx, claim)
				}
				if err != nil {
					c.t.Errorf("bind claim: %v", err)
				}
			}
		}
	}()
}

func using(claim string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Volumes = []*corev1.Volume{{Name: "data", PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
	}
}

// TestPodsGoWhereTheirVolumesAre: a claim that waits is bound to a volume of the chosen node, before the pod is; a pod
// without a volume says so, and is woken by one.
func TestPodsGoWhereTheirVolumesAre(t *testing.T) {
	c := newCluster(t)
	for _, n := range []string{"n1", "n2", "n3"} {
		c.node(n, nil)
	}
	c.storage("n2")
	c.bindClaims()
	c.schedule(nil)
	c.create(pod("early", using("nosuch")))
	c.awaitCondition("early", `persistentvolumeclaim "nosuch" not found`)
	c.claim("a")
	c.create(pod("p", using("a")))
	if got := c.awaitBound("p")["p"].GetSpec().GetNodeName(); got != "n2" {
		t.Errorf("the pod is on %s, its volume on n2", got)
	}
	a, err := client.For[*corev1.PersistentVolumeClaim](c.conn).Get(c.ctx, "default", "a")
	if err != nil || !volume.Bound(a) || a.GetSpec().GetVolumeName() != "on-n2" {
		t.Errorf("claim %v, %v", a, err)
	}
	c.claim("b")
	c.create(pod("q", using("b")))
	c.awaitCondition("q", "node(s) didn't find available persistent volumes to bind")
	// The claim is bound now: whoever uses it goes to its node.
	c.create(pod("r", using("a")))
	if got := c.awaitBound("r")["r"].GetSpec().GetNodeName(); got != "n2" {
		t.Errorf("the pod is on %s, its volume on n2", got)
	}
	c.claim("nosuch")
	c.awaitCondition("early", "node(s) didn't find available persistent volumes to bind")
}
