package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/reconcile"
	"trireme.dev/kit/daemon"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	"trireme.dev/services/apiserver/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a gateway with all controllers, and clients of it.
type cluster struct {
	deployments *client.Resource[*appsv1.Deployment]
	sets        *client.Resource[*appsv1.ReplicaSet]
	pods        *client.Resource[*corev1.Pod]
	nodes       *client.Resource[*corev1.Node]
	namespaces  *client.Resource[*corev1.Namespace]
	configMaps  *client.Resource[*corev1.ConfigMap]
	budgets     *client.Resource[*policyv1.PodDisruptionBudget]
	raw         corev1.PodServiceClient
	conn        grpc.ClientConnInterface
}

func start(t *testing.T) *cluster {
	t.Helper()
	server := apitest.New(t)
	cfg := NewConfig()
	cfg.Identity = "test"
	c := &Controller{cfg: cfg, logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	tasks, err := c.tasks(server.Conn())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx, tasks...) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("controllers: %v", err)
		}
	})
	conn := server.Conn()
	return &cluster{
		deployments: client.For[*appsv1.Deployment](conn), sets: client.For[*appsv1.ReplicaSet](conn),
		pods: client.For[*corev1.Pod](conn), nodes: client.For[*corev1.Node](conn),
		namespaces: client.For[*corev1.Namespace](conn), configMaps: client.For[*corev1.ConfigMap](conn),
		budgets: client.For[*policyv1.PodDisruptionBudget](conn), raw: corev1.NewPodServiceClient(conn), conn: conn,
	}
}

// until watches a kind until the objects of a namespace satisfy done.
func until[T client.Object](t *testing.T, r *client.Resource[T], namespace string, what string, done func([]T) bool) []T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w, err := r.Watch(ctx, client.WatchOptions{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	objects := map[string]T{}
	synced := false
	for {
		response, err := w.Recv()
		if err != nil {
			t.Fatalf("waiting for %s: %v; last seen %v", what, err, objects)
		}
		for _, e := range response.Events {
			name := e.Object.GetMetadata().GetName()
			if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
				delete(objects, name)
			} else {
				objects[name] = e.Object
			}
		}
		synced = synced || response.InitialEventsEnd
		if !synced || response.More {
			continue
		}
		var list []T
		for _, o := range objects {
			list = append(list, o)
		}
		if done(list) {
			return list
		}
	}
}

// kubelet makes every pod ready until the test ends.
func (c *cluster) kubelet(t *testing.T) {
	t.Helper()
	w, err := c.pods.Watch(context.Background(), client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { w.Close(); <-done })
	go func() {
		defer close(done)
		for {
			response, err := w.Recv()
			if err != nil {
				return // closed with the test
			}
			for _, e := range response.Events {
				if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED || e.Object.GetStatus().GetPhase() == "Running" {
					continue
				}
				pod := proto.CloneOf(e.Object)
				pod.Metadata.ResourceVersion = ""
				pod.Status = &corev1.PodStatus{Phase: "Running", Conditions: []*corev1.PodCondition{
					{Type: "Ready", Status: "True", LastTransitionTime: timestamppb.New(time.Now().Add(-time.Second))},
				}}
				if _, err := c.pods.UpdateStatus(context.Background(), pod); err != nil && !apierr.IsNotFound(err) {
					t.Errorf("kubelet: %v", err)
					return
				}
			}
		}
	}()
}

func web(replicas int32, image string) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: &appsv1.DeploymentSpec{
			Replicas: proto.Int32(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: &corev1.PodTemplateSpec{
				Metadata: &metav1.ObjectMeta{Labels: labels},
				Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: image}}},
			},
		},
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func settled(replicas int32, revision string) func([]*appsv1.Deployment) bool {
	return func(list []*appsv1.Deployment) bool {
		return len(list) == 1 && list[0].GetStatus().GetAvailableReplicas() == replicas &&
			list[0].GetStatus().GetUpdatedReplicas() == replicas && list[0].GetStatus().GetReplicas() == replicas &&
			list[0].GetStatus().GetObservedGeneration() == list[0].GetMetadata().GetGeneration() &&
			list[0].GetMetadata().GetAnnotations()["deployment.kubernetes.io/revision"] == revision
	}
}

func TestADeploymentIsRolledOutScaledAndCollected(t *testing.T) {
	c := start(t)
	c.kubelet(t)
	must[*appsv1.Deployment](t)(c.deployments.Create(t.Context(), web(3, "v1")))
	until(t, c.deployments, "default", "the first rollout", settled(3, "1"))

	d := must[*appsv1.Deployment](t)(c.deployments.Get(t.Context(), "default", "web"))
	d.Spec.Template.Spec.Containers[0].Image = "v2"
	d.Spec.Replicas = proto.Int32(5)
	must[*appsv1.Deployment](t)(c.deployments.Update(t.Context(), d))
	until(t, c.deployments, "default", "the second rollout", settled(5, "2"))
	pods := until(t, c.pods, "default", "five pods", func(pods []*corev1.Pod) bool { return len(pods) == 5 })
	for _, p := range pods {
		if p.GetSpec().GetContainers()[0].GetImage() != "v2" {
			t.Errorf("pod %s of the old template is left", p.GetMetadata().GetName())
		}
	}

	must[*appsv1.Deployment](t)(c.deployments.Delete(t.Context(), "default", "web", nil))
	until(t, c.sets, "default", "no sets", func(l []*appsv1.ReplicaSet) bool { return len(l) == 0 })
	until(t, c.pods, "default", "no pods", func(l []*corev1.Pod) bool { return len(l) == 0 })
}

func TestAReplicaSetAdoptsAndReleases(t *testing.T) {
	c := start(t)
	c.kubelet(t)
	labels := map[string]string{"app": "db"}
	orphan := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "orphan", Namespace: "default", Labels: labels},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "db"}}},
	}
	must[*corev1.Pod](t)(c.pods.Create(t.Context(), orphan))
	rs := must[*appsv1.ReplicaSet](t)(c.sets.Create(t.Context(), &appsv1.ReplicaSet{
		Metadata: &metav1.ObjectMeta{Name: "db", Namespace: "default"},
		Spec: &appsv1.ReplicaSetSpec{
			Replicas: proto.Int32(2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: &corev1.PodTemplateSpec{Metadata: &metav1.ObjectMeta{Labels: labels}, Spec: orphan.GetSpec()},
		},
	}))
	owned := func(p *corev1.Pod) bool {
		return reconcile.ControllerOf(p).GetUid() == rs.GetMetadata().GetUid()
	}
	pods := until(t, c.pods, "default", "two owned pods", func(l []*corev1.Pod) bool {
		return len(l) == 2 && owned(l[0]) && owned(l[1])
	})
	if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.GetMetadata().GetName() == "orphan" }) {
		t.Error("the orphan was not adopted")
	}
	adopted := must[*corev1.Pod](t)(c.pods.Get(t.Context(), "default", "orphan"))
	adopted.Metadata.Labels = map[string]string{"app": "other"}
	must[*corev1.Pod](t)(c.pods.Update(t.Context(), adopted))
	until(t, c.pods, "default", "the pod released and replaced", func(l []*corev1.Pod) bool {
		mine := 0
		for _, p := range l {
			if owned(p) {
				mine++
			}
		}
		return len(l) == 3 && mine == 2
	})
}

func TestEveryNodeGetsARangeOfItsOwn(t *testing.T) {
	c := start(t)
	for i := range 5 {
		must[*corev1.Node](t)(c.nodes.Create(t.Context(), &corev1.Node{Metadata: &metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}))
	}
	nodes := until(t, c.nodes, "", "five ranges", func(l []*corev1.Node) bool {
		return len(l) == 5 && !slices.ContainsFunc(l, func(n *corev1.Node) bool { return n.GetSpec().GetPodCidr() == "" })
	})
	seen := map[string]bool{}
	for _, n := range nodes {
		if seen[n.GetSpec().GetPodCidr()] {
			t.Errorf("range %s given twice", n.GetSpec().GetPodCidr())
		}
		seen[n.GetSpec().GetPodCidr()] = true
	}
}

func TestGarbageHasNoOwnerLeft(t *testing.T) {
	c := start(t)
	owner := func(name string) *corev1.ConfigMap {
		return must[*corev1.ConfigMap](t)(c.configMaps.Create(t.Context(), &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"}}))
	}
	a, b := owner("a"), owner("b")
	reference := func(o *corev1.ConfigMap) *metav1.OwnerReference {
		return &metav1.OwnerReference{ApiVersion: "v1", Kind: "ConfigMap", Name: o.GetMetadata().GetName(), Uid: o.GetMetadata().GetUid()}
	}
	stale := reference(a)
	stale.Uid = "another life"
	for name, owners := range map[string][]*metav1.OwnerReference{
		"of-both": {reference(a), reference(b)}, "of-a": {reference(a)}, "of-a-before": {stale},
	} {
		must[*corev1.ConfigMap](t)(c.configMaps.Create(t.Context(), &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default", OwnerReferences: owners},
		}))
	}
	names := func(l []*corev1.ConfigMap) string {
		var out []string
		for _, o := range l {
			out = append(out, o.GetMetadata().GetName())
		}
		slices.Sort(out)
		return fmt.Sprint(out)
	}
	until(t, c.configMaps, "default", "what a dead owner left", func(l []*corev1.ConfigMap) bool { return names(l) == "[a b of-a of-both]" })
	must[*corev1.ConfigMap](t)(c.configMaps.Delete(t.Context(), "default", "a", nil))
	until(t, c.configMaps, "default", "b and what it owns alone", func(l []*corev1.ConfigMap) bool {
		return names(l) == "[b of-both]" && !slices.ContainsFunc(l, func(o *corev1.ConfigMap) bool { return len(o.GetMetadata().GetOwnerReferences()) > 1 })
	})
}

func TestForegroundWaitsForDependentsAndOrphanLeavesThem(t *testing.T) {
	c := start(t)
	c.kubelet(t)
	must[*appsv1.Deployment](t)(c.deployments.Create(t.Context(), web(2, "v1")))
	until(t, c.deployments, "default", "the rollout", settled(2, "1"))
	must[*appsv1.Deployment](t)(c.deployments.Delete(t.Context(), "default", "web", &metav1.DeleteOptions{PropagationPolicy: "Foreground"}))
	until(t, c.deployments, "default", "the Deployment gone", func(l []*appsv1.Deployment) bool { return len(l) == 0 })
	if left := must[*client.List[*appsv1.ReplicaSet]](t)(c.sets.List(t.Context(), client.ListOptions{})); len(left.Items) != 0 {
		t.Errorf("the Deployment went before its %d sets", len(left.Items))
	}
	if left := must[*client.List[*corev1.Pod]](t)(c.pods.List(t.Context(), client.ListOptions{})); len(left.Items) != 0 {
		t.Errorf("the Deployment went before its %d pods", len(left.Items))
	}

	must[*appsv1.Deployment](t)(c.deployments.Create(t.Context(), web(2, "v1")))
	until(t, c.deployments, "default", "the rollout", settled(2, "1"))
	must[*appsv1.Deployment](t)(c.deployments.Delete(t.Context(), "default", "web", &metav1.DeleteOptions{PropagationPolicy: "Orphan"}))
	until(t, c.deployments, "default", "the Deployment gone", func(l []*appsv1.Deployment) bool { return len(l) == 0 })
	sets := until(t, c.sets, "default", "the set without an owner", func(l []*appsv1.ReplicaSet) bool {
		return len(l) == 1 && len(l[0].GetMetadata().GetOwnerReferences()) == 0
	})
	if sets[0].GetMetadata().GetDeletionTimestamp() != nil {
		t.Error("the orphan is being deleted")
	}
}

func TestADeletedNamespaceIsEmptiedAndGone(t *testing.T) {
	c := start(t)
	must[*corev1.Namespace](t)(c.namespaces.Create(t.Context(), &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "team"}}))
	must[*corev1.ConfigMap](t)(c.configMaps.Create(t.Context(), &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: "x", Namespace: "team"}}))
	must[*corev1.Pod](t)(c.pods.Create(t.Context(), &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "p", Namespace: "team"},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "i"}}},
	}))
	must[*corev1.Namespace](t)(c.namespaces.Delete(t.Context(), "", "team", nil))
	until(t, c.namespaces, "", "the namespace gone", func(l []*corev1.Namespace) bool {
		return !slices.ContainsFunc(l, func(n *corev1.Namespace) bool { return n.GetMetadata().GetName() == "team" })
	})
	if list := must[*client.List[*corev1.Pod]](t)(c.pods.List(t.Context(), client.ListOptions{Namespace: "team"})); len(list.Items) != 0 {
		t.Errorf("%d pods left", len(list.Items))
	}
}

// TestDisruptionBudget counts the pods of a Deployment, and lets one of them be evicted at a time.
func TestDisruptionBudget(t *testing.T) {
	c := start(t)
	c.kubelet(t)
	must[*appsv1.Deployment](t)(c.deployments.Create(t.Context(), web(3, "v1")))
	must[*policyv1.PodDisruptionBudget](t)(c.budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: &policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: structpb.NewNumberValue(1), Selector: proto.CloneOf(web(3, "v1").GetSpec().GetSelector()),
		},
	}))
	counts := func(expected, healthy, allowed int32) func([]*policyv1.PodDisruptionBudget) bool {
		return func(l []*policyv1.PodDisruptionBudget) bool {
			s := l[0].GetStatus()
			return s.GetExpectedPods() == expected && s.GetCurrentHealthy() == healthy && s.GetDisruptionsAllowed() == allowed &&
				s.GetObservedGeneration() == l[0].GetMetadata().GetGeneration()
		}
	}
	until(t, c.budgets, "default", "three healthy pods", counts(3, 3, 1))
	pods := must[*client.List[*corev1.Pod]](t)(c.pods.List(t.Context(), client.ListOptions{Namespace: "default"})).Items
	evict := func(i int) error {
		_, err := c.raw.Evict(t.Context(), &corev1.EvictRequest{Namespace: "default", Name: pods[i].GetMetadata().GetName()})
		return apierr.FromStatus(err)
	}
	if err := evict(0); err != nil {
		t.Fatal(err)
	}
	// Once the Deployment has replaced it, another may go. Until then this may be refused.
	until(t, c.budgets, "default", "the replacement", counts(3, 3, 1))
	if err := evict(1); err != nil {
		t.Fatal(err)
	}
	// A patch: the controller writes its status meanwhile.
	must[*appsv1.Deployment](t)(c.deployments.Patch(t.Context(), "default", "web", metav1.PatchType_PATCH_TYPE_MERGE, []byte(`{"spec":{"replicas":5}}`), ""))
	until(t, c.budgets, "default", "five healthy pods", counts(5, 5, 1))
}

func TestTwoOwnersOfOneOutputAreRefused(t *testing.T) {
	runner := func(name string, outputs ...string) *reconcile.Runner {
		return reconcile.New(reconcile.Config{Name: name, Outputs: outputs}, reconcile.Func(nil))
	}
	if err := exclusive([]*reconcile.Runner{runner("a", "Pod", "shared: x"), runner("b", "Node", "shared: x")}); err != nil {
		t.Error(err)
	}
	if err := exclusive([]*reconcile.Runner{runner("a", "Pod"), runner("b", "Pod")}); err == nil {
		t.Error("two writers of Pod accepted")
	}
}
