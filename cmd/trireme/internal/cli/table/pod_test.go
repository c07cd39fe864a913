package table_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	"trireme.dev/cmd/trireme/internal/cli/table"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func pod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	docs, err := manifest.Decode(kind.Builtin(), "test", strings.NewReader("apiVersion: v1\nkind: Pod\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := docs[0].Object.(*corev1.Pod)
	return p
}

func TestPodSummary(t *testing.T) {
	const (
		one       = "spec: {containers: [{name: c}]}\n"
		two       = "spec: {containers: [{name: c}, {name: d}]}\n"
		withInit  = "spec: {initContainers: [{name: i}, {name: j}], containers: [{name: c}]}\n"
		sidecar   = "spec: {initContainers: [{name: s, restartPolicy: Always}], containers: [{name: c}]}\n"
		deleted   = "metadata: {deletionTimestamp: \"2026-01-01T00:00:00Z\"}\n"
		running   = "state: {running: {}}, ready: true"
		completed = "state: {terminated: {exitCode: 0, reason: Completed}}"
	)
	for _, c := range []struct {
		name, pod string
		want      string
		ready     int
		total     int
		restarts  int
	}{
		{"new", one + "status: {phase: Pending}", "Pending", 0, 1, 0},
		{"no status", one, "Unknown", 0, 1, 0},
		{"gated", one + "status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}", "SchedulingGated", 0, 1, 0},
		{"creating", one + "status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}", "ContainerCreating", 0, 1, 0},
		{"image", one + "status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ImagePullBackOff}}}]}", "ImagePullBackOff", 0, 1, 0},
		{"running", two + "status: {phase: Running, containerStatuses: [{name: c, " + running + "}, {name: d, state: {running: {}}}]}", "Running", 1, 2, 0},
		{"crash loop", one + "status: {phase: Running, containerStatuses: [{name: c, restartCount: 5, state: {waiting: {reason: CrashLoopBackOff}}}]}", "CrashLoopBackOff", 0, 1, 5},
		{"the first container has the last word", two + "status: {phase: Running, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull}}}, {name: d, state: {waiting: {reason: CrashLoopBackOff}}}]}", "ErrImagePull", 0, 2, 0},
		{"completed", one + "status: {phase: Succeeded, containerStatuses: [{name: c, " + completed + "}]}", "Completed", 0, 1, 0},
		{"one of two completed", two + "status: {phase: Running, conditions: [{type: Ready, status: 'True'}], containerStatuses: [{name: c, " + completed + "}, {name: d, " + running + "}]}", "Running", 1, 2, 0},
		{"one of two completed, not ready", two + "status: {phase: Running, containerStatuses: [{name: c, " + completed + "}, {name: d, " + running + "}]}", "NotReady", 1, 2, 0},
		{"killed", one + "status: {phase: Failed, containerStatuses: [{name: c, state: {terminated: {exitCode: 137, signal: 9}}}]}", "Signal:9", 0, 1, 0},
		{"failed", one + "status: {phase: Failed, containerStatuses: [{name: c, state: {terminated: {exitCode: 3}}}]}", "ExitCode:3", 0, 1, 0},
		{"evicted", one + "status: {phase: Failed, reason: Evicted}", "Evicted", 0, 1, 0},
		{"first init", withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {running: {}}}, {name: j, state: {waiting: {reason: PodInitializing}}}]}", "Init:0/2", 0, 1, 0},
		{"second init", withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, " + completed + "}, {name: j, restartCount: 2, state: {waiting: {reason: PodInitializing}}}]}", "Init:1/2", 0, 1, 2},
		{"init fails", withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 1, reason: Error}}}]}", "Init:Error", 0, 1, 0},
		{"init crash loop", withInit + "status: {phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: CrashLoopBackOff}}}]}", "Init:CrashLoopBackOff", 0, 1, 0},
		{"init done", withInit + "status: {phase: Running, initContainerStatuses: [{name: i, restartCount: 3, " + completed + "}, {name: j, " + completed + "}], containerStatuses: [{name: c, " + running + "}]}", "Running", 1, 1, 0},
		{"sidecar", sidecar + "status: {phase: Running, initContainerStatuses: [{name: s, started: true, restartCount: 1, " + running + "}], containerStatuses: [{name: c, " + running + "}]}", "Running", 2, 2, 1},
		{"terminating", deleted + one + "status: {phase: Running, containerStatuses: [{name: c, " + running + "}]}", "Terminating", 1, 1, 0},
		{"deleted and over", deleted + one + "status: {phase: Succeeded, containerStatuses: [{name: c, " + completed + "}]}", "Completed", 0, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := table.SummaryOf(pod(t, c.pod))
			want := table.PodSummary{Status: c.want, Ready: c.ready, Total: c.total, Restarts: c.restarts}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGPUs(t *testing.T) {
	p := pod(t, `
spec:
  initContainers: [{name: i, resources: {limits: {nvidia.com/gpu: 4}}}]
  containers:
  - {name: c, resources: {limits: {nvidia.com/gpu: 1, cpu: 8}}}
  - {name: d, resources: {requests: {amd.com/gpu: 1}, limits: {amd.com/gpu: 1}}}
`)
	if got := table.PodGPUs(p); got != 4 {
		t.Errorf("the init container alone holds 4, got %d", got)
	}
	running := pod(t, "spec: {nodeName: n1, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]}\nstatus: {phase: Running}")
	over := pod(t, "spec: {nodeName: n1, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]}\nstatus: {phase: Failed}")
	waiting := pod(t, "spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]}")
	if diff := cmp.Diff(map[string]int64{"n1": 4}, table.UsedGPUs([]*corev1.Pod{running, running, over, waiting})); diff != "" {
		t.Error(diff)
	}
}
