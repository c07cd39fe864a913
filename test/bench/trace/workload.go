package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/kit/rpc"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	// creators are how many pods are being created at a time.
	creators = 32
	timeout  = 5 * time.Minute
)

// workload is what one run does.
type workload struct {
	binary      string
	pods, nodes int
}

// measured is what one run showed.
type measured struct {
	podsPerSecond float64
	// dropped spans, of all services.
	dropped int
}

// measure starts a cluster with the environment, creates the pods and waits until the last is bound.
func (w workload) measure(ctx context.Context, env []string) (m measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "trireme-bench-")
	if err != nil {
		return m, err
	}
	state := filepath.Join(dir, "s")
	trireme := func(ctx context.Context, args ...string) error {
		cmd := exec.CommandContext(ctx, w.binary, append(args, "--state-dir", state)...)
		cmd.Env = append(append(os.Environ(), "TRIREME_CONFIG="+filepath.Join(dir, "config.yaml")), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("trireme %s: %w\n%s", args[0], err, out)
		}
		return nil
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		down := trireme(ctx, "down") // services count what they lost when they stop
		var counted error
		m.dropped, counted = dropped(filepath.Join(state, "log"))
		err = errors.Join(err, down, counted, trireme(ctx, "down", "--purge"), os.RemoveAll(dir))
	}()
	if err := trireme(ctx, "up", "--detach", "--simulate", strconv.Itoa(w.nodes), "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0"); err != nil {
		return m, err
	}
	conn, err := rpc.Dial(rpc.ClientConfig{Address: "unix://" + filepath.Join(state, "run", "apiserver.sock")})
	if err != nil {
		return m, err
	}
	defer conn.Close()
	took, err := w.bindAll(ctx, client.For[*corev1.Pod](conn))
	m.podsPerSecond = float64(w.pods) / took.Seconds()
	return m, err
}

// bindAll creates the pods and returns how long it took until all were seen bound.
func (w workload) bindAll(ctx context.Context, pods *client.Resource[*corev1.Pod]) (time.Duration, error) {
	watch, err := pods.Watch(ctx, client.WatchOptions{Namespace: "default"})
	if err != nil {
		return 0, err
	}
	defer watch.Close()
	numbers := make(chan int)
	failed := make(chan error, creators)
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range creators {
		wg.Go(func() {
			for n := range numbers {
				if _, err := pods.Create(ctx, pod(n)); err != nil {
					cancel(err)
					failed <- err
					return
				}
			}
		})
	}
	wg.Go(func() {
		defer close(numbers)
		for n := range w.pods {
			select {
			case numbers <- n:
			case <-ctx.Done():
				return
			}
		}
	})
	bound := map[string]bool{}
	for len(bound) < w.pods {
		response, err := watch.Recv()
		if err != nil {
			cancel(err)
			break
		}
		for _, e := range response.Events {
			if e.Object.GetSpec().GetNodeName() != "" {
				bound[e.Object.GetMetadata().GetName()] = true
			}
		}
	}
	took := time.Since(began)
	wg.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return took, context.Cause(ctx)
	}
}

func pod(n int) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", n), Namespace: "default"},
		Spec: &corev1.PodSpec{
			TerminationGracePeriodSeconds: proto.Int64(0),
			Containers:                    []*corev1.Container{{Name: "c", Image: "trireme.dev/busybox:1", Command: []string{"sleep", "100000"}}},
		},
	}
}

// lostLine is how a service that stops tells of its lost spans.
var lostLine = regexp.MustCompile(`msg="spans lost".* spansDropped=(\d+)`)

func dropped(logs string) (int, error) {
	files, err := filepath.Glob(filepath.Join(logs, "*.log"))
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return 0, err
		}
		for _, found := range lostLine.FindAllSubmatch(text, -1) {
			n, err := strconv.Atoi(string(found[1]))
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}
