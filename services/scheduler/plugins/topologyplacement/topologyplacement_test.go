package topologyplacement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

const rack = "example.com/rack"

func snapshot(t *testing.T, racks map[string]string, members map[string]string) *framework.Snapshot {
	var nodes []*corev1.Node
	for name, r := range racks {
		n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}}
		if r != "" {
			n.Metadata.Labels = map[string]string{rack: r}
		}
		nodes = append(nodes, n)
	}
	var pods []*framework.PodInfo
	for name, node := range members {
		info, err := framework.NewPodInfo(&corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Uid: name},
			Spec: &corev1.PodSpec{
				NodeName: proto.String(node), SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: proto.String("g")},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, info)
	}
	s, err := framework.NewSnapshot(nodes, pods)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func group(key string, scheduled int) *framework.Queued {
	g := &schedulingv1.PodGroup{Spec: &schedulingv1.PodGroupSpec{}}
	if key != "" {
		g.Spec.SchedulingConstraints = &schedulingv1.PodGroupSchedulingConstraints{Topology: []*schedulingv1.TopologyConstraint{{Key: key}}}
	}
	return &framework.Queued{GroupKey: framework.GroupKey{Namespace: "ns", Name: "g"}, Group: g, Scheduled: scheduled}
}

func TestGenerator(t *testing.T) {
	racks := map[string]string{"n1": "b", "n2": "a", "n3": "a", "n4": "", "n5": "c"}
	for _, tc := range []struct {
		name    string
		key     string
		members map[string]string
		want    string
	}{
		{"no constraint", "", nil, "(all)"},
		{"by name of the domain", rack, nil, "example.com/rack=a: n2 n3; example.com/rack=b: n1; example.com/rack=c: n5"},
		{"unknown label", "example.com/row", nil, "UnschedulableAndUnresolvable: no node has the label example.com/row"},
		{"where members are", rack, map[string]string{"p": "n3"}, "example.com/rack=a: n2 n3"},
		{"members in two domains", rack, map[string]string{"p": "n1", "q": "n1x"}, "example.com/rack=b: n1"},
		{"member without a domain", rack, map[string]string{"p": "n4"}, "Error: pod ns/p of the group is on node n4, which has no label example.com/rack"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := snapshot(t, racks, tc.members)
			out, st := Generator{}.PlacementGenerate(nil, group(tc.key, len(tc.members)), &framework.Placement{}, s)
			if got := describe(s, out, st); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	s := snapshot(t, racks, map[string]string{"p": "n1", "q": "n2"})
	_, st := Generator{}.PlacementGenerate(nil, group(rack, 2), &framework.Placement{}, s)
	if st.Code() != framework.Error || !strings.HasPrefix(st.Message(), "pods of the group are in two domains of example.com/rack: ") {
		t.Errorf("members in two racks: %v", st)
	}
}

func describe(s *framework.Snapshot, out []*framework.Placement, st *framework.Status) string {
	if !st.IsSuccess() {
		return fmt.Sprintf("%v: %s", st.Code(), st.Message())
	}
	var parts []string
	for _, p := range out {
		if p.Positions == nil {
			parts = append(parts, "(all)")
			continue
		}
		var names []string
		for _, i := range p.Positions {
			names = append(names, s.Nodes()[i].Name())
		}
		slices.Sort(names)
		parts = append(parts, p.Name+": "+strings.Join(names, " "))
	}
	return strings.Join(parts, "; ")
}

func TestPodsCount(t *testing.T) {
	g := group("", 1)
	var scores []int64
	for _, n := range []int{1, 3, 0} {
		score, st := PodsCount{}.PlacementScore(nil, g, &framework.Placed{Assignments: make([]framework.Assignment, n)}, nil)
		if !st.IsSuccess() {
			t.Fatal(st)
		}
		scores = append(scores, score)
	}
	if st := (PodsCount{}).NormalizePlacementScore(nil, g, nil, scores); !st.IsSuccess() || !slices.Equal(scores, []int64{50, 100, 25}) {
		t.Errorf("got %v, %v", scores, st)
	}
	if st := (PodsCount{}).NormalizePlacementScore(nil, g, nil, []int64{0, 0}); st.Code() != framework.Error {
		t.Errorf("nothing placed anywhere: %v", st)
	}
}
