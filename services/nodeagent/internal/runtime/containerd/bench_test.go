//go:build linux && realruntime

package containerd

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	export "github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"

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

// BenchmarkBare is the measure for BenchmarkPod: one container created and started through containerd's own client,
// with its default spec and no pod around it.
func BenchmarkBare(b *testing.B) {
	n := newNode(b)
	ctx := namespaces.WithNamespace(context.Background(), "bare")
	c, err := client.New(n.cfg.Address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	n.load(testImage, "")
	stored, err := n.real.client.ImageService().Get(runtimetest.Context(b), testImage)
	if err != nil {
		b.Fatal(err)
	}
	var archive bytes.Buffer
	if err := n.real.client.Export(runtimetest.Context(b), &archive, export.WithManifest(stored.Target, testImage)); err != nil {
		b.Fatal(err)
	}
	if _, err := c.Import(ctx, &archive); err != nil {
		b.Fatal(err)
	}
	image, err := c.GetImage(ctx, testImage)
	if err != nil {
		b.Fatal(err)
	}
	if err := image.Unpack(ctx, n.real.cfg.Snapshotter); err != nil {
		b.Fatal(err)
	}
	var took time.Duration
	i := 0
	for b.Loop() {
		i++
		id := fmt.Sprintf("bare-%d", i)
		began := time.Now()
		container, err := c.NewContainer(ctx, id, client.WithSnapshotter(n.real.cfg.Snapshotter), client.WithNewSnapshot(id, image),
			client.WithNewSpec(oci.WithImageConfigArgs(image, nil), oci.WithProcessArgs("sleep", "1000")),
			client.WithRuntime("io.containerd.runc.v2", &options.Options{BinaryName: n.cfg.RuncBinary}))
		if err != nil {
			b.Fatal(err)
		}
		task, err := container.NewTask(ctx, cio.NullIO)
		if err != nil {
			b.Fatal(err)
		}
		if err := task.Start(ctx); err != nil {
			b.Fatal(err)
		}
		took += time.Since(began)
		if _, err := task.Delete(ctx, client.WithProcessKill); err != nil {
			b.Fatal(err)
		}
		if err := container.Delete(ctx, client.WithSnapshotCleanup); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "start-ms")
	b.ReportMetric(0, "ns/op")
}
