package cycle

import (
	"maps"
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/kit/telemetry/telemetrytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// TestAttemptsToMakeRoom counts those of pods and of gangs, each once however many placements it looks at, and also where no
// room can be made. What fits needs none.
func TestAttemptsToMakeRoom(t *testing.T) {
	for _, tc := range []struct {
		name string
		q    *framework.Queued
		want float64
	}{
		{"a pod that fits", &framework.Queued{Pods: incoming(t, 1, 9, 1).Pods}, 0},
		{"a gang that fits", incoming(t, 1, 9, 1), 0},
		{"a pod", &framework.Queued{Pods: incoming(t, 1, 9, 4).Pods}, 1},
		{"a pod that nobody makes way for", &framework.Queued{Pods: incoming(t, 1, 0, 4).Pods}, 1},
		{"a pod that may not", &framework.Queued{Pods: withPolicy(t, "Never", incoming(t, 1, 9, 4).Pods)}, 1},
		{"a gang", incoming(t, 2, 9, 2, 2), 1},
		{"a gang of one rack", inRack(incoming(t, 2, 9, 2, 2)), 1},
		{"a gang that nobody makes way for", inRack(incoming(t, 2, 0, 2, 2)), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			counted := telemetrytest.RecordMetrics(t)
			counters := newCounters("default-scheduler")
			w := newFullWorld(t, []*corev1.Node{rackNode("n1", "a", 4), rackNode("n2", "b", 4)},
				[]running{{name: "a", node: "n1", cpus: 3}, {name: "b", node: "n2", cpus: 3}}, nil, 0)
			var watch Watch
			w.decideWatched(t, tc.q, &watch)
			counters.watched(&watch)
			watch.reset()
			counters.watched(&watch) // of an attempt that ended before it began
			want := map[string]float64{}
			if tc.want > 0 {
				want[""] = tc.want
			}
			if got := counted.Values(t, "scheduler_preemption_attempts_total"); !maps.Equal(got, want) {
				t.Errorf("counted %v, want %v", got, want)
			}
		})
	}
}

func withPolicy(t *testing.T, policy string, pods []*framework.PodInfo) []*framework.PodInfo {
	for i, p := range pods {
		pod := proto.CloneOf(p.Pod)
		pod.Spec.PreemptionPolicy = proto.String(policy)
		pods[i] = info(t, pod)
	}
	return pods
}
