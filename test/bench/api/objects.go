package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/test/bench/internal/measure"
)

// filler brings a pod to about 1.2 KB as stored.
var filler = strings.Repeat("f", 560)

func (d *driver) pod(name string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace: d.run, Name: name,
			Labels:      map[string]string{"app": "bench", "app.kubernetes.io/name": "bench", "run": d.run},
			Annotations: map[string]string{"bench.trireme.dev/filler": filler},
		},
		Spec: &corev1.PodSpec{
			Containers: []*corev1.Container{{
				Name: "main", Image: "registry.example/bench:1", Command: []string{"sleep", "infinity"},
				Env: []*corev1.EnvVar{{Name: "A", Value: proto.String("one")}, {Name: "B", Value: proto.String("two")}},
				Resources: &corev1.ResourceRequirements{
					Requests: map[string]string{"cpu": "100m", "memory": "64Mi"}, Limits: map[string]string{"memory": "128Mi"},
				},
			}},
		},
	}
}

func (d *driver) createNodes(ctx context.Context) error {
	_, err := corev1.NewNamespaceServiceClient(d.conn).Create(ctx, &corev1.CreateNamespaceRequest{
		Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: d.run}},
	})
	if err != nil {
		return err
	}
	nodes := corev1.NewNodeServiceClient(d.conn)
	return measure.Parallel(d.nodes, d.writers, func(i int) error {
		_, err := nodes.Create(ctx, &corev1.CreateNodeRequest{Object: &corev1.Node{
			Metadata: &metav1.ObjectMeta{
				Name: d.node(i), Labels: map[string]string{"kubernetes.io/hostname": d.node(i), "zone": fmt.Sprint(i % 8)},
				Annotations: map[string]string{"bench.trireme.dev/filler": filler},
			},
			Spec: &corev1.NodeSpec{},
		}})
		return err
	})
}

func (d *driver) node(i int) string { return fmt.Sprintf("%s-n%d", d.run, i) }

// createPods creates the pods and returns how many a second.
func (d *driver) createPods(ctx context.Context) (float64, error) {
	conns := make([]corev1.PodServiceClient, 4)
	for i := range conns {
		conn, err := d.dial()
		if err != nil {
			return 0, err
		}
		conns[i] = corev1.NewPodServiceClient(conn)
	}
	begin := time.Now()
	err := measure.Parallel(d.pods, d.writers, func(i int) error {
		_, err := conns[i%len(conns)].Create(ctx, &corev1.CreatePodRequest{Object: d.pod(fmt.Sprintf("p%d", i))})
		return err
	})
	return float64(d.pods) / time.Since(begin).Seconds(), err
}

// bind binds pods as one gang: in one transaction.
func (d *driver) bind(ctx context.Context, pods corev1.PodServiceClient, gang ...*corev1.Binding) error {
	resp, err := pods.Bind(ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{{Bindings: gang}}})
	if err != nil {
		return err
	}
	if e := resp.GetResults()[0].GetError(); e != nil {
		return fmt.Errorf("bind %s: %s", gang[0].GetPodName(), e.GetMessage())
	}
	return nil
}

// memory waits until the gateway has calmed down, then reads its resident memory.
func (d *driver) memory(ctx context.Context, results *measure.Results, name string, settle time.Duration) error {
	if d.pid == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
	}
	mb, err := measure.ResidentMB(d.pid)
	results.Add(name, mb, "MB", 0)
	return err
}

func podClients(conns []*grpc.ClientConn) []corev1.PodServiceClient {
	out := make([]corev1.PodServiceClient, len(conns))
	for i, c := range conns {
		out[i] = corev1.NewPodServiceClient(c)
	}
	return out
}

func (d *driver) dialMany(n int) ([]*grpc.ClientConn, error) {
	out := make([]*grpc.ClientConn, n)
	for i := range out {
		var err error
		if out[i], err = d.dial(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
