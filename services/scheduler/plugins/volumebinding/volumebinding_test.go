package volumebinding

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/internal/claimstest"
)

const (
	uau     = "UnschedulableAndUnresolvable: "
	missing = uau + "node(s) didn't find available persistent volumes to bind"
	away    = uau + "node(s) didn't match PersistentVolume's node affinity"
)

func world() *claimstest.World {
	w := &claimstest.World{}
	for _, name := range []string{"n1", "n2"} {
		w.Nodes = append(w.Nodes, claimstest.Node(name, map[string]string{"kubernetes.io/hostname": name, "zone": "z" + name}))
	}
	w.Classes = append(w.Classes, claimstest.Class("now", "x", false), claimstest.Class("local", volume.NoProvisioner, true), claimstest.Class("cloud", "x", true))
	return w
}

func TestFilter(t *testing.T) {
	for _, c := range []struct {
		name   string
		claims []string
		setup  func(*claimstest.World)
		want   [2]string
	}{
		{"no claims", nil, nil, [2]string{}},
		{"no such claim", []string{"a"}, nil, both(uau + `persistentvolumeclaim "a" not found`)},
		{"claim of another namespace", []string{"a"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "local", "1Gi", ""))
			w.Claims[0].Metadata.Namespace = "other"
		}, both(uau + `persistentvolumeclaim "a" not found`)},
		{"claim that goes", []string{"a"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "local", "1Gi", ""))
			w.Claims[0].Metadata.DeletionTimestamp = timestamppb.Now()
		}, both(uau + `persistentvolumeclaim "a" is being deleted`)},
		{"claim that lost its volume", []string{"a"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "local", "1Gi", "v"))
			w.Claims[0].Status.Phase = proto.String("Lost")
		}, both(uau + `persistentvolumeclaim "a" bound to non-existent persistentvolume "v"`)},
		{"unbound, to be bound at once", []string{"a"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "now", "1Gi", ""))
		}, both(uau + "pod has unbound immediate PersistentVolumeClaims")},
		{"unbound, of no class", []string{"a"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "", "1Gi", ""))
		}, both(uau + "pod has unbound immediate PersistentVolumeClaims")},
		{"bound to what all reach", []string{"a"}, func(w *claimstest.World) {
			w.Claims, w.Volumes = append(w.Claims, claimstest.Claim("a", "now", "1Gi", "v")), append(w.Volumes, claimstest.Volume("v", "now", "1Gi", "a"))
		}, [2]string{}},
		{"bound to what n2 reaches", []string{"a"}, func(w *claimstest.World) {
			w.Claims, w.Volumes = append(w.Claims, claimstest.Claim("a", "now", "1Gi", "v")), append(w.Volumes, claimstest.Volume("v", "now", "1Gi", "a", "n2"))
		}, [2]string{away, ""}},
		{"bound to what is gone", []string{"a"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "now", "1Gi", "v"))
		}, both(uau + "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")},
		{"a volume is on n1", []string{"a"}, func(w *claimstest.World) {
			w.Claims, w.Volumes = append(w.Claims, claimstest.Claim("a", "local", "1Gi", "")), append(w.Volumes, claimstest.Volume("v", "local", "1Gi", "", "n1"))
		}, [2]string{"", missing}},
		{"it is too small", []string{"a"}, func(w *claimstest.World) {
			w.Claims, w.Volumes = append(w.Claims, claimstest.Claim("a", "local", "2Gi", "")), append(w.Volumes, claimstest.Volume("v", "local", "1Gi", "", "n1"))
		}, both(missing)},
		{"two claims, two volumes on n2 only", []string{"a", "b"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "local", "5Gi", ""), claimstest.Claim("b", "local", "1Gi", ""))
			w.Volumes = append(w.Volumes, claimstest.Volume("v1", "local", "5Gi", "", "n1"), claimstest.Volume("v2", "local", "5Gi", "", "n2"), claimstest.Volume("v3", "local", "5Gi", "", "n2"))
		}, [2]string{missing, ""}},
		{"small claims choose first", []string{"a", "b"}, func(w *claimstest.World) {
			// The large one fits only the large volume; the small one must not take it.
			w.Claims = append(w.Claims, claimstest.Claim("a", "local", "5Gi", ""), claimstest.Claim("b", "local", "1Gi", ""))
			w.Volumes = append(w.Volumes, claimstest.Volume("v1", "local", "9Gi", "", "n1"), claimstest.Volume("v2", "local", "2Gi", "", "n1"))
		}, [2]string{"", missing}},
		{"one is bound on n1, one is open on n2", []string{"a", "b"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "local", "1Gi", "v1"), claimstest.Claim("b", "local", "1Gi", ""))
			w.Volumes = append(w.Volumes, claimstest.Volume("v1", "local", "1Gi", "a", "n1"), claimstest.Volume("v2", "local", "1Gi", "", "n2"))
		}, [2]string{missing, away}},
		{"to be made anywhere", []string{"a"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "cloud", "1Gi", ""))
		}, [2]string{}},
		{"to be made in the zone of n2", []string{"a"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "cloud", "1Gi", ""))
			w.Classes[2].AllowedTopologies = []*corev1.TopologySelectorTerm{{MatchLabelExpressions: []*corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"zn2", "z9"}}}}}
		}, [2]string{missing, ""}},
		{"being made on n1", []string{"a"}, func(w *claimstest.World) {
			w.Claims = append(w.Claims, claimstest.Claim("a", "cloud", "1Gi", ""))
			w.Claims[0].Metadata.Annotations = map[string]string{volume.SelectedNode: "n1"}
		}, [2]string{"", missing}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world()
			if c.setup != nil {
				c.setup(w)
			}
			h := w.Handle(t)
			p, _ := New(h, DefaultArgs())
			got, _ := claimstest.Verdicts(t, h, p, claimstest.Pod(t, "p", "", c.claims...))
			if diff := cmp.Diff(map[string]string{"n1": c.want[0], "n2": c.want[1]}, got); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}

func both(s string) [2]string { return [2]string{s, s} }

// TestReserve: what one pod has chosen is no choice for another, until it is given up.
func TestReserve(t *testing.T) {
	w := world()
	w.Claims = append(w.Claims, claimstest.Claim("a", "local", "1Gi", ""), claimstest.Claim("b", "local", "1Gi", ""))
	w.Volumes = append(w.Volumes, claimstest.Volume("v", "local", "1Gi", "", "n1"))
	h := w.Handle(t)
	p, _ := New(h, DefaultArgs())
	a, b := claimstest.Pod(t, "a", "", "a"), claimstest.Pod(t, "b", "", "b")
	_, stateA := claimstest.Verdicts(t, h, p, a)
	got, stateB := claimstest.Verdicts(t, h, p, b)
	if got["n1"] != "" {
		t.Fatal("nobody has it yet")
	}
	if st := p.Reserve(context.Background(), stateA, a, "n1"); !st.IsSuccess() {
		t.Fatal(st)
	}
	if flight, st := p.PreBindPreFlight(context.Background(), stateA, a, "n1"); !st.IsSuccess() || !flight.AllowParallel {
		t.Errorf("there is something to bind: %v", st)
	}
	if st := p.Reserve(context.Background(), stateB, b, "n1"); st.Code() != framework.Unschedulable {
		t.Errorf("the volume was given twice: %v", st)
	}
	if got, _ := claimstest.Verdicts(t, h, p, b); got["n1"] != missing {
		t.Errorf("got %v", got)
	}
	p.Unreserve(context.Background(), stateB, b, "n1")
	p.Unreserve(context.Background(), stateA, a, "n1")
	p.Unreserve(context.Background(), stateA, a, "n1")
	if st := p.Reserve(context.Background(), stateB, b, "n1"); !st.IsSuccess() {
		t.Errorf("the volume was given back: %v", st)
	}
	plain := claimstest.Pod(t, "plain", "")
	if _, st := p.PreBindPreFlight(context.Background(), framework.NewCycleState(), plain, "n1"); !st.IsSkip() {
		t.Errorf("a pod without claims has nothing to bind: %v", st)
	}
}

// TestMatesSeeChoices: a volume that a member of a gang will choose is no choice for the ones after it, and a claim that both have
// goes where the first of them is.
func TestMatesSeeChoices(t *testing.T) {
	w := world()
	w.Claims = append(w.Claims, claimstest.Claim("a", "local", "1Gi", ""), claimstest.Claim("b", "local", "1Gi", ""))
	w.Volumes = append(w.Volumes, claimstest.Volume("v1", "local", "1Gi", "", "n1"), claimstest.Volume("v2", "local", "1Gi", "", "n2"))
	h := w.Handle(t)
	p, _ := New(h, DefaultArgs())
	verdicts := func(pod *framework.PodInfo, n1, n2 string) {
		t.Helper()
		got, _ := claimstest.Verdicts(t, h, p, pod)
		if diff := cmp.Diff(map[string]string{"n1": n1, "n2": n2}, got); diff != "" {
			t.Errorf("verdicts on %s (-want +got):\n%s", pod.Name(), diff)
		}
	}
	a, b, plain := claimstest.Pod(t, "a", "", "a"), claimstest.Pod(t, "b", "", "b"), claimstest.Pod(t, "plain", "")
	also := claimstest.Pod(t, "also", "", "a")
	verdicts(b, "", "")
	on := func(pod *framework.PodInfo, node string) framework.Assignment {
		return framework.Assignment{Pod: pod, Node: node}
	}
	h.State.SetMates([]framework.Assignment{on(plain, "n1"), on(a, "n1")})
	verdicts(b, missing, "")
	verdicts(also, "", missing)
	h.State.SetMates(nil)
	verdicts(b, "", "")
	h.State.SetMates([]framework.Assignment{on(a, "n2")})
	verdicts(b, "", missing)
	h.State.SetMates([]framework.Assignment{on(a, "n2"), on(b, "n1")})
	verdicts(claimstest.Pod(t, "third", "", "b"), "", missing)
}

func TestHints(t *testing.T) {
	p, _ := New(world().Handle(t), DefaultArgs())
	pod := claimstest.Pod(t, "p", "", "a")
	hint := func(resource framework.EventResource, change *framework.Change) framework.Hint {
		for _, e := range p.EventsToRegister() {
			if e.Event.Resource == resource {
				if e.Hint == nil {
					return framework.Queue
				}
				return e.Hint(pod, change)
			}
		}
		return framework.QueueSkip
	}
	if hint(framework.PersistentVolumeClaim, &framework.Change{New: claimstest.Claim("a", "x", "1Gi", "v")}) != framework.Queue {
		t.Error("its claim was bound")
	}
	if hint(framework.PersistentVolumeClaim, &framework.Change{New: claimstest.Claim("b", "x", "1Gi", "v")}) != framework.QueueSkip {
		t.Error("another claim was bound")
	}
	if hint(framework.PersistentVolume, &framework.Change{New: claimstest.Volume("v", "x", "1Gi", "")}) != framework.Queue {
		t.Error("a volume came")
	}
}
