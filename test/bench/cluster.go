package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	// image of the pods that are started; loaded by up.
	imageFile = "build/images/busybox.tar"
	image     = "trireme.dev/busybox:1"
	// settle is how long an idle cluster is left alone before its memory is read.
	settle = 15 * time.Second
)

// measured is what one cluster showed.
type measured struct {
	nodeReady, firstPod, startP50 time.Duration
	idlePSS                       float64
}

// measureCluster brings a cluster up, measures it, and takes it down.
func measureCluster(ctx context.Context, starts int) (m measured, err error) {
	state, err := os.MkdirTemp("", "trireme-bench-")
	if err != nil {
		return m, err
	}
	config := filepath.Join(state, "config.yaml")
	trireme := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "bin/trireme", append(args, "--state-dir", filepath.Join(state, "s"))...)
		cmd.Env = append(os.Environ(), "TRIREME_CONFIG="+config)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("trireme %s: %w\n%s", args[0], err, out)
		}
		return nil
	}
	defer func() {
		down := trireme("down", "--purge")
		err = errors.Join(err, down, os.RemoveAll(state))
	}()

	conn, err := rpc.Dial(rpc.ClientConfig{Address: "unix://" + filepath.Join(state, "s", "run", "apiserver.sock")})
	if err != nil {
		return m, err
	}
	defer conn.Close()
	manifest := filepath.Join(state, "first.yaml")
	if err := os.WriteFile(manifest, []byte(firstPod), 0o600); err != nil {
		return m, err
	}
	began := time.Now()
	up := make(chan error, 1)
	go func() {
		up <- trireme("up", "--detach", "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0",
			"--load-image", imageFile, "--apply", manifest)
	}()
	ready := make(chan error, 1)
	go func() {
		ready <- firstSeen(ctx, conn, func(n *corev1.Node) bool {
			return slices.ContainsFunc(n.GetStatus().GetConditions(), func(c *corev1.NodeCondition) bool {
				return c.GetType() == "Ready" && c.GetStatus() == "True"
			})
		})
		m.nodeReady = time.Since(began)
	}()
	err = firstSeen(ctx, conn, func(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Running" })
	m.firstPod = time.Since(began)
	if err := errors.Join(err, <-ready, <-up); err != nil {
		return m, err
	}
	if m.startP50, err = podStarts(ctx, client.For[*corev1.Pod](conn), starts); err != nil {
		return m, err
	}
	select {
	case <-ctx.Done():
		return m, ctx.Err()
	case <-time.After(settle):
	}
	m.idlePSS, err = pss(filepath.Join(state, "s", "run"))
	return m, err
}

// firstPod is what up applies.
const firstPod = `apiVersion: v1
kind: Pod
metadata: {name: first, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "` + image + `", command: [sleep, "100000"]}]
`

// firstSeen waits until an object of T's kind is as wanted, from before there is a gateway.
func firstSeen[T client.Object](ctx context.Context, conn *grpc.ClientConn, wanted func(T) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := rpc.WaitServing(ctx, conn); err != nil {
		return err
	}
	w, err := client.For[T](conn).Watch(ctx, client.WatchOptions{})
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		response, err := w.Recv()
		if err != nil {
			return err
		}
		for _, e := range response.Events {
			if wanted(e.Object) {
				return nil
			}
		}
	}
}

// podStarts is the median time from the request that creates a pod to its being seen Running.
func podStarts(ctx context.Context, pods *client.Resource[*corev1.Pod], n int) (time.Duration, error) {
	remove := func(name string) error {
		_, err := pods.Delete(ctx, "default", name, &metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if apierr.IsNotFound(err) {
			return nil
		}
		return err
	}
	if err := remove("first"); err != nil {
		return 0, err
	}
	var took []time.Duration
	for i := range n {
		name := fmt.Sprintf("start-%d", i)
		w, err := pods.Watch(ctx, client.WatchOptions{Namespace: "default", FieldSelector: "metadata.name=" + name})
		if err != nil {
			return 0, err
		}
		began := time.Now()
		_, err = pods.Create(ctx, &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: image, Command: []string{"sleep", "100000"}}}},
		})
		if err != nil {
			return 0, err
		}
		if err := until(w, func(p *corev1.Pod, _ bool) bool { return p.GetStatus().GetPhase() == "Running" }); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
		if err := remove(name); err != nil {
			return 0, err
		}
		if err := until(w, func(_ *corev1.Pod, gone bool) bool { return gone }); err != nil {
			return 0, err
		}
		w.Close()
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func until(w *client.Watch[*corev1.Pod], done func(p *corev1.Pod, gone bool) bool) error {
	for {
		response, err := w.Recv()
		if err != nil {
			return err
		}
		for _, e := range response.Events {
			if done(e.Object, e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED) {
				return nil
			}
		}
	}
}

// pss sums the proportional memory of the five services, in MB of a million bytes: what they share is counted once.
func pss(run string) (float64, error) {
	total := 0.0
	for _, service := range []string{"apiserver", "scheduler", "controller", "nodeagent", "deviced"} {
		text, err := os.ReadFile(filepath.Join(run, service+".pid"))
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(text))
		if len(fields) == 0 {
			return 0, fmt.Errorf("pid file of %s is empty", service)
		}
		rollup, err := os.ReadFile(filepath.Join("/proc", fields[0], "smaps_rollup"))
		if err != nil {
			return 0, err
		}
		found := false
		for _, line := range strings.Split(string(rollup), "\n") {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
				kb, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					return 0, err
				}
				total += kb * 1024 / 1e6
				found = true
			}
		}
		if !found {
			return 0, fmt.Errorf("smaps_rollup of %s has no Pss", service)
		}
	}
	return total, nil
}
