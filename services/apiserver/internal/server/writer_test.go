package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// written is a write that was acknowledged.
type written struct {
	subject  *subject
	key      string
	revision int64
	id       string // what it wrote that nobody else did; empty where there is nothing
}

// writer writes at random.
type writer struct {
	model  *model
	random *rand.Rand
	id, n  int
}

// patience of one write. The store may be away for a while.
const writeTimeout = 10 * time.Second

func (w *writer) run(ctx context.Context, steps int) {
	for range steps {
		if ctx.Err() != nil {
			return
		}
		w.step(ctx)
		w.model.steps.step()
	}
}

func (w *writer) pick(choices ...string) string { return choices[w.random.IntN(len(choices))] }

func (w *writer) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	conn := w.model.cluster.conns[w.random.IntN(2)]
	namespace := w.pick("default", "default", "kube-public")
	if w.random.IntN(2) == 0 {
		w.configMap(ctx, corev1.NewConfigMapServiceClient(conn), namespace, fmt.Sprint("m", w.random.IntN(8)))
	} else {
		w.pod(ctx, corev1.NewPodServiceClient(conn), namespace, fmt.Sprint("p", w.random.IntN(10)))
	}
}

func (w *writer) configMap(ctx context.Context, maps corev1.ConfigMapServiceClient, namespace, name string) {
	w.n++
	id := fmt.Sprintf("%d-%d", w.id, w.n)
	obj := &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"color": w.pick("red", "green", "blue")}},
		Data:     map[string]string{"id": id},
	}
	if w.random.IntN(60) == 0 {
		obj.Data["filler"] = strings.Repeat("x", 600<<10) // pushes history out of the caches
	}
	ready := grpc.WaitForReady(true)
	var got *corev1.ConfigMap
	var err error
	switch w.random.IntN(7) {
	case 0:
		id = ""
		got, err = maps.Delete(ctx, &metav1.DeleteRequest{Namespace: namespace, Name: name}, ready)
	case 1, 2:
		got, err = maps.Create(ctx, &corev1.CreateConfigMapRequest{Object: obj}, ready)
	case 3:
		got, err = maps.Patch(ctx, &metav1.PatchRequest{
			Namespace: namespace, Name: name, Type: metav1.PatchType_PATCH_TYPE_MERGE,
			Patch: []byte(fmt.Sprintf(`{"metadata":{"labels":{"color":%q}},"data":{"id":%q}}`, obj.Metadata.Labels["color"], id)),
		}, ready)
	case 4:
		// Conditional on what a read, of any age, has shown.
		var seen *corev1.ConfigMap
		if seen, err = maps.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name, ResourceVersion: w.pick("", "0")}, ready); err == nil {
			obj.Metadata.ResourceVersion = seen.GetMetadata().GetResourceVersion()
			got, err = maps.Update(ctx, &corev1.UpdateConfigMapRequest{Object: obj}, ready)
		}
	default:
		got, err = maps.Update(ctx, &corev1.UpdateConfigMapRequest{Object: obj}, ready)
	}
	w.outcome(configMaps, got.GetMetadata(), id, err)
}

func (w *writer) pod(ctx context.Context, client corev1.PodServiceClient, namespace, name string) {
	w.n++
	ready := grpc.WaitForReady(true)
	var got *corev1.Pod
	var err error
	switch w.random.IntN(7) {
	case 0:
		got, err = client.Delete(ctx, &metav1.DeleteRequest{Namespace: namespace, Name: name, Options: &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(int64(w.random.IntN(2) * 30))}}, ready)
	case 1, 2:
		got, err = client.Create(ctx, &corev1.CreatePodRequest{Object: w.newPod(namespace, name)}, ready)
	case 3:
		got, err = client.Patch(ctx, &metav1.PatchRequest{
			Namespace: namespace, Name: name, Type: metav1.PatchType_PATCH_TYPE_MERGE,
			Patch: []byte(fmt.Sprintf(`{"metadata":{"labels":{"color":%q},"annotations":{"id":"%d-%d"}}}`, w.pick("red", "green", "blue"), w.id, w.n)),
		}, ready)
	case 4:
		if got, err = client.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name}, ready); err == nil {
			got.Status.Phase, got.Status.Message = w.pick("Pending", "Running", "Failed"), fmt.Sprintf("%d-%d", w.id, w.n)
			got, err = client.UpdateStatus(ctx, &corev1.UpdatePodStatusRequest{Object: got}, ready)
		}
	default:
		w.bind(ctx, client, namespace)
		return
	}
	w.outcome(pods, got.GetMetadata(), "", err)
}

func (w *writer) newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:          map[string]string{"color": w.pick("red", "green", "blue"), "pod-template-hash": w.pick("h1", "h2")},
			OwnerReferences: []*metav1.OwnerReference{{ApiVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", Uid: w.pick("u1", "u2")}},
		},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "registry.example/app:1"}}},
	}
}

// bind puts several pods on nodes at one revision.
func (w *writer) bind(ctx context.Context, client corev1.PodServiceClient, namespace string) {
	group := &corev1.BindGroup{}
	for _, i := range w.random.Perm(10)[:1+w.random.IntN(3)] {
		group.Bindings = append(group.Bindings, &corev1.Binding{Namespace: namespace, PodName: fmt.Sprint("p", i), NodeName: w.pick("n1", "n2")})
	}
	resp, err := client.Bind(ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{group}}, grpc.WaitForReady(true))
	if err != nil {
		w.outcome(pods, nil, "", err)
		return
	}
	result := resp.GetResults()[0]
	switch {
	case result.GetError() == nil && result.GetResourceVersion() != "":
		// At least one of them has changed: those that were there already have not.
		w.outcome(pods, &metav1.ObjectMeta{ResourceVersion: result.GetResourceVersion()}, "", nil)
	case result.GetError().GetReason() == "Unavailable":
		w.outcome(pods, nil, "", apierr.Unavailable(result.GetError().GetMessage()))
	}
}

// outcome notes what became of a write.
func (w *writer) outcome(s *subject, meta *metav1.ObjectMeta, id string, err error) {
	err = apierr.FromStatus(err)
	m := w.model
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		revision, bad := strconv.ParseInt(meta.GetResourceVersion(), 10, 64)
		if bad != nil {
			m.report.wrong = append(m.report.wrong, bad.Error())
		}
		m.report.writes++
		m.writes = append(m.writes, written{subject: s, key: meta.GetNamespace() + "/" + meta.GetName(), revision: revision, id: id})
	case apierr.IsNotFound(err), apierr.IsAlreadyExists(err), apierr.IsConflict(err), apierr.IsInvalid(err) && s == pods:
	case apierr.IsUnavailable(err), apierr.IsCanceled(err), apierr.IsTimeout(err):
		m.report.unknown++
	default:
		m.report.wrong = append(m.report.wrong, fmt.Sprintf("write to %s: %v", s.service, err))
	}
}

// marks writes where watchers may stop, then for every one of them something that it must hear of, and returns the last
// revision.
func (w *writer) marks(ctx context.Context) int64 {
	conn := w.model.cluster.conns[0]
	maps, podClient, ready := corev1.NewConfigMapServiceClient(conn), corev1.NewPodServiceClient(conn), grpc.WaitForReady(true)
	last := int64(0)
	mark := func(meta *metav1.ObjectMeta, err error) {
		if err != nil {
			w.model.complain("mark: %v", err)
			return
		}
		last, _ = strconv.ParseInt(meta.GetResourceVersion(), 10, 64) // a gateway wrote it
		w.model.target.CompareAndSwap(0, last)
	}
	for i, namespace := range []string{"default", "default", "kube-public"} {
		got, err := maps.Create(ctx, &corev1.CreateConfigMapRequest{Object: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprint("mark", i), Labels: map[string]string{"color": []string{"blue", "red", "blue"}[i]},
		}}}, ready)
		mark(got.GetMetadata(), err)
	}
	_, _ = maps.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: "m3"}, ready) // it may not be there
	got, err := maps.Create(ctx, &corev1.CreateConfigMapRequest{Object: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "m3"}}}, ready)
	mark(got.GetMetadata(), err)
	for i := range 2 {
		p := w.newPod("default", fmt.Sprint("mark", i))
		p.Metadata.Labels["color"], p.Metadata.Labels["pod-template-hash"], p.Metadata.OwnerReferences[0].Uid = "red", "h1", "u1"
		got, err := podClient.Create(ctx, &corev1.CreatePodRequest{Object: p}, ready)
		mark(got.GetMetadata(), err)
	}
	bound, err := podClient.Bind(ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{{Bindings: []*corev1.Binding{{Namespace: "default", PodName: "mark0", NodeName: "n1"}}}}}, ready)
	if err == nil && bound.GetResults()[0].GetError() != nil {
		err = fmt.Errorf("%v", bound.GetResults()[0].GetError())
	}
	mark(&metav1.ObjectMeta{ResourceVersion: append(bound.GetResults(), nil)[0].GetResourceVersion()}, err)
	return last
}

// judgeWrites holds what writers were told against what happened: each acknowledged write is there, at its revision, and
// nothing was written twice.
func (m *model) judgeWrites() {
	type event struct {
		subject  *subject
		key      string
		revision int64
	}
	happened := map[event]string{}
	ids := map[string]int64{}
	for _, s := range []*subject{configMaps, pods} {
		_, changes, err := m.journal.changes(s)
		if err != nil {
			m.complain("%v", err)
			return
		}
		for _, c := range changes {
			id := ""
			if config, ok := c.now.(*corev1.ConfigMap); ok {
				if id = config.GetData()["id"]; id != "" {
					if before := ids[id]; before != 0 {
						m.complain("write %s of %s happened at %d and again at %d", id, c.key, before, c.revision)
					}
					ids[id] = c.revision
				}
			}
			happened[event{s, c.key, c.revision}] = id
			happened[event{s, "/", c.revision}] = ""
		}
	}
	for _, w := range m.writes {
		if id, ok := happened[event{w.subject, w.key, w.revision}]; !ok || id != w.id {
			m.complain("write %q of %s was acknowledged at %d, the store has %q there (%v)", w.id, w.key, w.revision, id, ok)
		}
	}
}
