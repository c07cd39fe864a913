//go:build linux && realruntime

package containerd

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/runtimetest"
)

// BenchmarkPod measures what a pod's start is made of, and its end.
func BenchmarkPod(b *testing.B) {
	n := newNode(b)
	if err := n.real.SetPodCIDR(runtimetest.Context(b), runtimetest.PodCIDR); err != nil {
		b.Fatal(err)
	}
	ctx, logs := context.Background(), b.TempDir()
	took := map[string]time.Duration{}
	measure := func(what string, do func() error) {
		began := time.Now()
		if err := do(); err != nil {
			b.Fatalf("%s: %v", what, err)
		}
		took[what] += time.Since(began)
	}
	i := 0
	for b.Loop() {
		i++
		uid := fmt.Sprintf("bench-%d", i)
		var id string
		measure("sandbox", func() error {
			_, err := n.real.CreateSandbox(ctx, runtime.SandboxSpec{
				PodUID: uid, Namespace: "default", Name: uid, Hostname: uid, Cgroup: runtime.PodCgroup{QOS: runtime.BestEffort},
			})
			return err
		})
		measure("create", func() (err error) {
			id, err = n.real.CreateContainer(ctx, runtime.ContainerSpec{
				PodUID: uid, Name: "main", Image: testImage, Command: []string{"sleep", "1000"}, QOS: runtime.BestEffort,
				LogPath: filepath.Join(logs, uid), TerminationMessagePath: "/dev/termination-log",
			})
			return err
		})
		measure("start", func() error { return n.real.StartContainer(ctx, id) })
		measure("remove", func() error { return n.real.RemoveSandbox(ctx, uid) })
	}
	for what, d := range took {
		b.ReportMetric(float64(d.Microseconds())/1000/float64(b.N), what+"-ms")
	}
	b.ReportMetric(0, "ns/op")
	b.StopTimer()
	n.requireNothing()
}
