package inmemory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/kit/telemetry/telemetrytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// gang creates a group and its pods, those of a gang that runs on the nodes called on.
func gang(s *Scheduler, name string, priority int32, spec *schedulingv1.PodGroupSpec, size int, on ...string) {
	spec.SchedulingPolicy = &schedulingv1.PodGroupSchedulingPolicy{Gang: &schedulingv1.GangSchedulingPolicy{MinCount: int32(size)}}
	s.Group(nil, &schedulingv1.PodGroup{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name}, Spec: spec})
	for i := range size {
		p := pod(fmt.Sprintf("%s-%d", name, i), "", priority)
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(name)}
		if on != nil {
			p.Spec.NodeName = proto.String(on[i%len(on)])
		}
		s.Create(p)
	}
}

// TestGangDisplaces has a gang of high priority come to a cluster that is full: 2 racks of 2 nodes of 4 CPUs. It is bound as a
// whole, and nobody goes for whom there is room left.
func TestGangDisplaces(t *testing.T) {
	whole := &schedulingv1.DisruptionMode{All: &schedulingv1.AllDisruptionMode{}}
	single := &schedulingv1.DisruptionMode{Single: &schedulingv1.SingleDisruptionMode{}}
	for _, tc := range []struct {
		name string
		size int
		rack bool
		// mode of the gang of 8 that runs across both racks, beside a pod of each rack that fill it; nil for lone pods only.
		mode *schedulingv1.DisruptionMode
		want string // how many go of each kind
	}{
		{"pods", 3, false, nil, "pod 3"},
		{"pods of one rack", 6, true, nil, "pod 6"},
		{"pods before a gang that goes as a whole", 3, false, whole, "pod 3"},
		{"a gang that goes as a whole", 10, false, whole, "gang 8 pod 2"},
		{"pods of a gang", 10, false, single, "gang 2 pod 8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			counted := telemetrytest.RecordMetrics(t)
			bound := make(chan string, 100)
			s, err := New(Config{Bound: func(p *corev1.Pod) { bound <- p.GetMetadata().GetName() }})
			if err != nil {
				t.Fatal(err)
			}
			names := []string{"a1", "a2", "b1", "b2"}
			for _, name := range names {
				n := node(name, 4)
				n.Metadata.Labels = map[string]string{"rack": name[:1]}
				s.Node(nil, n)
				lone := 4
				if tc.mode != nil {
					lone = 2
				}
				for i := range lone {
					p := pod(fmt.Sprintf("pod-%s-%d", name, i), "", 1)
					p.Spec.NodeName = proto.String(name)
					s.Create(p)
				}
			}
			if tc.mode != nil {
				gang(s, "gang", 1, &schedulingv1.PodGroupSpec{DisruptionMode: tc.mode}, 8, names...)
			}
			spec := &schedulingv1.PodGroupSpec{}
			if tc.rack {
				spec.SchedulingConstraints = &schedulingv1.PodGroupSchedulingConstraints{Topology: []*schedulingv1.TopologyConstraint{{Key: "rack"}}}
			}
			gang(s, "new", 9, spec, tc.size)
			for _, name := range runs(t, s, bound, tc.size) {
				if !strings.HasPrefix(name, "new-") {
					t.Errorf("%s was bound", name)
				}
			}
			left, racks := map[string]int{"pod": 16, "gang": 0}, map[string]bool{}
			if tc.mode != nil {
				left = map[string]int{"pod": 8, "gang": 8}
			}
			snapshot, err := s.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range snapshot.Nodes() {
				for _, p := range n.Pods {
					kind, _, _ := strings.Cut(p.Pod.GetMetadata().GetName(), "-")
					left[kind]--
					if kind == "new" {
						racks[n.Labels()["rack"]] = true
					}
				}
			}
			var went []string
			for kind, n := range left {
				if n > 0 {
					went = append(went, fmt.Sprint(kind, " ", n))
				}
			}
			slices.Sort(went)
			if got := strings.Join(went, " "); got != tc.want || left["new"] != -tc.size || tc.rack && len(racks) != 1 {
				t.Errorf("gone: %s, want %s; racks %v", got, tc.want, racks)
			}
			if got := counted.Values(t, "scheduler_preemption_victims"); !maps.Equal(got, map[string]float64{"": 1}) {
				t.Errorf("room was made %v times, want once", got)
			}
		})
	}
}

// TestGangDisplacesWithinItsQueue: where its queue's share and not room is what a gang lacks, pods of that share that matter
// less give way, and no others.
func TestGangDisplacesWithinItsQueue(t *testing.T) {
	bound := make(chan string, 100)
	s, err := New(Config{Bound: func(p *corev1.Pod) { bound <- p.GetMetadata().GetName() }})
	if err != nil {
		t.Fatal(err)
	}
	s.Queue(nil, queueObject("a", &schedulingv1.QueueSpec{Limit: map[string]string{"cpu": "4"}}))
	s.Queue(nil, queueObject("b", &schedulingv1.QueueSpec{}))
	for _, name := range []string{"n1", "n2"} {
		s.Node(nil, node(name, 8))
	}
	for i := range 4 {
		for _, queue := range []string{"a", "b"} {
			p := pod(fmt.Sprint(queue, i), queue, 1)
			p.Spec.NodeName = proto.String([]string{"n1", "n2"}[i%2])
			s.Create(p)
		}
	}
	s.Group(nil, &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "new", Uid: "new"},
		Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1.GangSchedulingPolicy{MinCount: 3},
		}},
	})
	for i := range 3 {
		p := pod(fmt.Sprint("new-", i), "a", 9)
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String("new")}
		s.Create(p)
	}
	runs(t, s, bound, 3)
	snapshot, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]int{}
	for _, n := range snapshot.Nodes() {
		for _, p := range n.Pods {
			left[p.Labels()["trireme.dev/queue"]]++
		}
	}
	if left["a"] != 4 || left["b"] != 4 {
		t.Errorf("pods of queue a: %d, want 3 new ones and 1; of queue b: %d, want 4", left["a"], left["b"])
	}
}
