package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/apiserver"
)

// cluster is a gateway that serves TCP with mutual TLS, and whoever calls it.
type cluster struct {
	t    *testing.T
	ca   *pki.CA
	dir  string
	addr string
	log  string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Issue(dir, "apiserver", pki.Identity{CommonName: "system:trireme-apiserver", DNSNames: []string{"localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, ca: ca, dir: dir, log: filepath.Join(dir, "audit.log")}
	s, _ := start(t, apiserver.Config{
		DataDir: filepath.Join(dir, "etcd"), Listen: "127.0.0.1:0", Socket: filepath.Join(dir, "a.sock"), AuditLog: c.log,
		CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA, CAKeyFile: filepath.Join(dir, "ca.key"),
	})
	c.addr = s.Addr().String()
	return c
}

func (c *cluster) as(user string, groups []string, names ...string) *grpc.ClientConn {
	c.t.Helper()
	dir := c.t.TempDir()
	files, err := c.ca.Issue(dir, "client", pki.Identity{CommonName: user, Organizations: groups, DNSNames: names})
	if err != nil {
		c.t.Fatal(err)
	}
	return dial(c.t, rpc.ClientConfig{Address: c.addr, ServerName: "localhost", CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA})
}

func (c *cluster) admin() *grpc.ClientConn { return c.as("admin", []string{"system:masters"}) }

func (c *cluster) node(name string, more ...string) *grpc.ClientConn {
	return c.as("system:node:"+name, []string{"system:nodes"}, append([]string{name}, more...)...)
}

func want(t *testing.T, what string, err error, reason apierr.Reason) {
	t.Helper()
	if got := apierr.ReasonOf(apierr.FromStatus(err)); got != reason {
		t.Errorf("%s: %q (%v), want %q", what, got, err, reason)
	}
}

// first returns the error of a stream's first message.
func first[T any](stream grpc.ServerStreamingClient[T], err error) error {
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

const allowed apierr.Reason = ""

func boundPod(name, node, secret, configMap string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &corev1.PodSpec{
			NodeName: proto.String(node),
			Containers: []*corev1.Container{{Name: "c", Image: "i:1", EnvFrom: []*corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{Name: secret}},
			}}},
			Volumes: []*corev1.Volume{{Name: "v", ConfigMap: &corev1.ConfigMapVolumeSource{Name: configMap}}},
		},
	}
}

// A node over mutual TLS: its own node, lease and pods, what they name, and nothing of others.
func TestANodeSeesAndWritesItsOwn(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	admin := c.admin()
	adminPods, adminSecrets := client.For[*corev1.Pod](admin), client.For[*corev1.Secret](admin)
	for _, n := range []string{"a", "b"} {
		meta := func(name string) *metav1.ObjectMeta {
			return &metav1.ObjectMeta{Namespace: "default", Name: name + "-" + n}
		}
		if _, err := adminSecrets.Create(ctx, &corev1.Secret{Metadata: meta("secret"), Data: map[string][]byte{"k": []byte("v")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.For[*corev1.ConfigMap](admin).Create(ctx, &corev1.ConfigMap{Metadata: meta("map")}); err != nil {
			t.Fatal(err)
		}
		if _, err := adminPods.Create(ctx, boundPod("pod-"+n, n, "secret-"+n, "map-"+n)); err != nil {
			t.Fatal(err)
		}
	}
	a := c.node("a")
	nodes, leases, pods := client.For[*corev1.Node](a), client.For[*coordinationv1.Lease](a), client.For[*corev1.Pod](a)
	secrets, maps := corev1.NewSecretServiceClient(a), corev1.NewConfigMapServiceClient(a)
	b := client.For[*corev1.Node](c.node("b"))
	if _, err := b.Create(ctx, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "b"}}); err != nil {
		t.Fatal(err)
	}

	// Nodes.
	own, err := nodes.Create(ctx, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "a", Labels: map[string]string{"kubernetes.io/hostname": "a", "rack": "7"}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = nodes.Create(ctx, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "c"}})
	want(t, "create another node", err, apierr.ReasonForbidden)
	own.Status = &corev1.NodeStatus{Conditions: []*corev1.NodeCondition{{Type: "Ready", Status: "True"}}}
	own, err = nodes.UpdateStatus(ctx, own)
	want(t, "own status", err, allowed)
	_, err = nodes.UpdateStatus(ctx, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "b"}})
	want(t, "status of another", err, apierr.ReasonForbidden)
	tainted := proto.CloneOf(own)
	tainted.Spec = &corev1.NodeSpec{Taints: []*corev1.Taint{{Key: "k", Effect: "NoSchedule"}}}
	_, err = nodes.Update(ctx, tainted)
	want(t, "own taints", err, apierr.ReasonForbidden)
	labelled := proto.CloneOf(own)
	labelled.Metadata.Labels["node-restriction.kubernetes.io/team"] = "x"
	_, err = nodes.Update(ctx, labelled)
	want(t, "a label of administrators", err, apierr.ReasonForbidden)
	_, err = nodes.Get(ctx, "", "b")
	want(t, "look at another node", err, allowed)
	_, err = nodes.Delete(ctx, "", "a", nil)
	want(t, "delete itself", err, apierr.ReasonForbidden)

	// Leases.
	lease := func(namespace, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: &coordinationv1.LeaseSpec{HolderIdentity: proto.String("a")}}
	}
	_, err = leases.Create(ctx, lease("kube-node-lease", "a"))
	want(t, "own lease", err, allowed)
	_, err = leases.Create(ctx, lease("kube-node-lease", "b"))
	want(t, "lease of another", err, apierr.ReasonForbidden)
	_, err = leases.Get(ctx, "kube-node-lease", "b")
	want(t, "read lease of another", err, apierr.ReasonForbidden)
	_, err = leases.Create(ctx, lease("kube-system", "a"))
	want(t, "lease of its name elsewhere", err, apierr.ReasonForbidden)

	// Pods.
	pod, err := pods.Get(ctx, "default", "pod-a")
	want(t, "own pod", err, allowed)
	_, err = pods.Get(ctx, "default", "pod-b")
	want(t, "pod of another", err, apierr.ReasonForbidden)
	_, err = pods.Get(ctx, "default", "none")
	want(t, "no pod", err, apierr.ReasonNotFound)
	list, err := pods.List(ctx, client.ListOptions{FieldSelector: "spec.nodeName=a"})
	want(t, "own pods", err, allowed)
	if err == nil && (len(list.Items) != 1 || list.Items[0].GetMetadata().GetName() != "pod-a") {
		t.Errorf("own pods are %v", list.Items)
	}
	for _, s := range []string{"", "spec.nodeName=b", "spec.nodeName!=b", "metadata.name=pod-a"} {
		_, err = pods.List(ctx, client.ListOptions{FieldSelector: s})
		want(t, "pods by "+s, err, apierr.ReasonForbidden)
	}
	pod.Status = &corev1.PodStatus{Phase: "Running"}
	_, err = pods.UpdateStatus(ctx, pod)
	want(t, "status of own pod", err, allowed)
	other, err := adminPods.Get(ctx, "default", "pod-b")
	if err != nil {
		t.Fatal(err)
	}
	other.Status.Phase = "Failed"
	_, err = pods.UpdateStatus(ctx, other)
	want(t, "status of another's pod", err, apierr.ReasonForbidden)
	_, err = pods.Patch(ctx, "default", "pod-b", metav1.PatchType_PATCH_TYPE_MERGE, []byte(`{"status":{"phase":"Failed"}}`), "status")
	want(t, "patch status of another's pod", err, apierr.ReasonForbidden)
	_, err = pods.Patch(ctx, "default", "pod-a", metav1.PatchType_PATCH_TYPE_MERGE, []byte(`{"metadata":{"labels":{"x":"y"}}}`), "")
	want(t, "patch own pod", err, apierr.ReasonForbidden)
	_, err = pods.Delete(ctx, "default", "pod-b", nil)
	want(t, "delete another's pod", err, apierr.ReasonForbidden)
	_, err = pods.Create(ctx, boundPod("x", "a", "secret-b", "map-b"))
	want(t, "make a pod that names a secret", err, apierr.ReasonForbidden)
	_, err = corev1.NewPodServiceClient(a).Bind(ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{{}}})
	want(t, "bind", err, apierr.ReasonForbidden)

	// What pods name.
	get := func(name string) *metav1.GetRequest { return &metav1.GetRequest{Namespace: "default", Name: name} }
	_, err = secrets.Get(ctx, get("secret-a"))
	want(t, "named secret", err, allowed)
	_, err = secrets.Get(ctx, get("secret-b"))
	want(t, "another's secret", err, apierr.ReasonForbidden)
	const sentence = `secrets "secret-b" is forbidden: User "system:node:a" cannot get resource "secrets" in API group "" in the namespace "default": no pod of node "a" names it`
	if err == nil || !strings.Contains(err.Error(), sentence) {
		t.Errorf("refused with %v, want %s", err, sentence)
	}
	_, err = maps.Get(ctx, get("map-a"))
	want(t, "named map", err, allowed)
	_, err = maps.Get(ctx, get("map-b"))
	want(t, "another's map", err, apierr.ReasonForbidden)
	want(t, "all secrets", first(secrets.List(ctx, &metav1.ListRequest{Namespace: "default"})), apierr.ReasonForbidden)
	want(t, "list one secret", first(secrets.List(ctx, &metav1.ListRequest{Namespace: "default", FieldSelector: "metadata.name=secret-a"})), allowed)
	want(t, "watch one secret", first(secrets.Watch(ctx, &metav1.WatchRequest{Namespace: "default", FieldSelector: "metadata.name=secret-a"})), allowed)
	want(t, "watch another's secret", first(secrets.Watch(ctx, &metav1.WatchRequest{Namespace: "default", FieldSelector: "metadata.name=secret-b"})), apierr.ReasonForbidden)
	_, err = secrets.Update(ctx, &corev1.UpdateSecretRequest{Object: &corev1.Secret{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "secret-a"}}})
	want(t, "write a named secret", err, apierr.ReasonForbidden)

	// Events in its own name.
	event := func(host string) *corev1.Event {
		return &corev1.Event{
			Metadata: &metav1.ObjectMeta{Namespace: "default", GenerateName: "e-"}, InvolvedObject: &corev1.ObjectReference{Namespace: proto.String("default")},
			Source: &corev1.EventSource{Host: proto.String(host)},
		}
	}
	_, err = client.For[*corev1.Event](a).Create(ctx, event("a"))
	want(t, "event", err, allowed)
	_, err = client.For[*corev1.Event](a).Create(ctx, event("b"))
	want(t, "event in another's name", err, apierr.ReasonForbidden)

	// Of what is for administrators, and calls of no kind.
	_, err = componentv1.NewMaintenanceServiceClient(a).Status(ctx, &componentv1.StatusRequest{})
	want(t, "the store", err, apierr.ReasonForbidden)
	_, err = nodev1.NewNodeServiceClient(a).GetInfo(ctx, &nodev1.GetInfoRequest{NodeName: "b"})
	want(t, "another agent", err, apierr.ReasonForbidden)
	_, err = healthpb.NewHealthClient(a).Check(ctx, &healthpb.HealthCheckRequest{})
	want(t, "health", err, allowed)

	// Once the pod is gone, so is the sight of its secret.
	_, err = pods.Delete(ctx, "default", "pod-a", &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(0)})
	want(t, "delete own pod", err, allowed)
	_, err = secrets.Get(ctx, get("secret-a"))
	want(t, "secret of a pod that is gone", err, apierr.ReasonForbidden)
	// And with the next one it is back, however soon it is asked for.
	if _, err := adminPods.Create(ctx, boundPod("pod-c", "a", "secret-b", "map-a")); err != nil {
		t.Fatal(err)
	}
	_, err = secrets.Get(ctx, get("secret-b"))
	want(t, "secret of a pod that is new", err, allowed)
}

// The agent of simulated nodes is each that its certificate names, and no other.
func TestAnAgentOfSeveralNodes(t *testing.T) {
	c := newCluster(t)
	sim := client.For[*corev1.Node](c.node("sim", "sim-0", "sim-1", "localhost", "other"))
	for name, reason := range map[string]apierr.Reason{
		"sim": allowed, "sim-0": allowed, "sim-1": allowed, "sim-2": apierr.ReasonForbidden, "localhost": apierr.ReasonForbidden, "other": apierr.ReasonForbidden,
	} {
		_, err := sim.Create(t.Context(), &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}})
		want(t, "create "+name, err, reason)
	}
}

func TestWhoElseMayDoWhat(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	if _, err := client.For[*corev1.Secret](c.admin()).Create(ctx, &corev1.Secret{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "s"}}); err != nil {
		t.Fatal(err)
	}
	secret := func(conn grpc.ClientConnInterface) error {
		_, err := corev1.NewSecretServiceClient(conn).Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "s"})
		return err
	}
	pods := func(conn grpc.ClientConnInterface) error {
		return first(corev1.NewPodServiceClient(conn).Watch(ctx, &metav1.WatchRequest{}))
	}
	bind := func(conn grpc.ClientConnInterface) error {
		_, err := corev1.NewPodServiceClient(conn).Bind(ctx, &corev1.BindRequest{})
		return err
	}
	health := func(conn grpc.ClientConnInterface) error {
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	info := func(conn grpc.ClientConnInterface) error {
		_, err := nodev1.NewJoinServiceClient(conn).GetClusterInfo(ctx, &nodev1.GetClusterInfoRequest{})
		return err
	}
	lease := func(namespace string) func(grpc.ClientConnInterface) error {
		return func(conn grpc.ClientConnInterface) error {
			_, err := client.For[*coordinationv1.Lease](conn).Create(ctx, &coordinationv1.Lease{Metadata: &metav1.ObjectMeta{Namespace: namespace, GenerateName: "l-"}})
			return err
		}
	}
	scheduler, controller := c.as("system:trireme-scheduler", nil), c.as("system:trireme-controller", nil)
	nobody, false_ := c.as("somebody", nil), c.as("system:node:a", nil) // who goes by a node's name without being one
	for _, tt := range []struct {
		who  string
		conn grpc.ClientConnInterface
		what string
		call func(grpc.ClientConnInterface) error
		want apierr.Reason
	}{
		{"scheduler", scheduler, "pods", pods, allowed},
		{"scheduler", scheduler, "secret", secret, apierr.ReasonForbidden},
		{"scheduler", scheduler, "bind", bind, allowed},
		{"scheduler", scheduler, "lease", lease("kube-system"), allowed},
		{"scheduler", scheduler, "lease elsewhere", lease("default"), apierr.ReasonForbidden},
		{"controller", controller, "pods", pods, allowed},
		{"controller", controller, "secret", secret, allowed},
		{"controller", controller, "bind", bind, apierr.ReasonForbidden},
		{"somebody", nobody, "pods", pods, apierr.ReasonForbidden},
		{"somebody", nobody, "secret", secret, apierr.ReasonForbidden},
		{"somebody", nobody, "health", health, allowed},
		{"somebody", nobody, "cluster info", info, allowed},
		{"no node", false_, "pods", pods, apierr.ReasonForbidden},
	} {
		t.Run(tt.who+"/"+tt.what, func(t *testing.T) { want(t, tt.what, tt.call(tt.conn), tt.want) })
	}
}

// The audit log without a policy: writes and refusals, and no reads that were allowed.
func TestAuditTellsOfWritesAndRefusals(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	admin := c.admin()
	if _, err := client.For[*corev1.Secret](admin).Create(ctx, &corev1.Secret{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"password": []byte("hunter2")},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.For[*corev1.Secret](admin).Get(ctx, "default", "s"); err != nil {
		t.Fatal(err)
	}
	_, err := client.For[*corev1.Secret](c.node("a")).Get(ctx, "default", "s")
	want(t, "secret", err, apierr.ReasonForbidden)
	type line struct {
		Verb, Stage, Level, RequestURI string
		User                           struct{ Username string }
		ObjectRef                      struct{ Resource, Namespace, Name string }
		ResponseStatus                 struct{ Code int }
	}
	wanted := []string{
		"admin create secrets default/s 200 ResponseComplete Metadata",
		"system:node:a get secrets default/s 403 ResponseComplete Metadata",
	}
	var got []string
	deadline, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		got = nil
		raw, err := os.ReadFile(c.log)
		if err == nil {
			if strings.Contains(string(raw), "hunter2") || strings.Contains(string(raw), "aHVudGVyMg") {
				t.Fatal("a secret's value is in the log")
			}
			for l := range strings.Lines(string(raw)) {
				var e line
				if err := json.Unmarshal([]byte(l), &e); err != nil {
					t.Fatalf("%v in %q", err, l)
				}
				if e.ObjectRef.Resource == "secrets" {
					got = append(got, fmt.Sprintf("%s %s %s %s/%s %d %s %s", e.User.Username, e.Verb, e.ObjectRef.Resource,
						e.ObjectRef.Namespace, e.ObjectRef.Name, e.ResponseStatus.Code, e.Stage, e.Level))
				}
			}
		}
		if strings.Join(got, "\n") == strings.Join(wanted, "\n") {
			return
		}
		select {
		case <-deadline.Done():
			t.Fatalf("the log says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
