package cycle

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/runtime"
	"trireme.dev/services/scheduler/plugins"
)

// world is a cache and a decider over it, without queue and gateway.
type world struct {
	cache    *cache.Cache
	snapshot cache.Snapshot
	decider  *Decider
	on       map[string][]*framework.PodInfo // by node, as decided
}

func newWorld(t testing.TB, extra ...framework.Registration) *world {
	profile := plugins.Default("default-scheduler")
	profile.Plugins = append(profile.Plugins, extra...)
	return newWorldOf(t, profile)
}

func newWorldOf(t testing.TB, profile framework.Profile) *world {
	fw, err := runtime.New(profile, runtime.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{cache: cache.New(slog.New(slog.DiscardHandler)), on: map[string][]*framework.PodInfo{}}
	w.decider = NewDecider(fw, &w.snapshot, 0)
	return w
}

// decide runs one attempt and, where it places pods, assumes them.
func (w *world) decide(t testing.TB, q *framework.Queued) Decision { return w.decideWatched(t, q, nil) }

func (w *world) decideWatched(t testing.TB, q *framework.Queued, watch *Watch) Decision {
	if err := w.cache.Update(&w.snapshot); err != nil {
		t.Fatal(err)
	}
	d := w.decider.Decide(context.Background(), q, watch)
	for _, a := range d.Placed {
		if err := w.cache.Assume(a.Pod, a.Node); err != nil {
			t.Fatal(err)
		}
		w.on[a.Node] = append(w.on[a.Node], a.Pod)
	}
	return d
}

func info(t testing.TB, p *corev1.Pod) *framework.PodInfo {
	i, err := framework.NewPodInfo(p)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func gang(name string, minCount int, scheduled int, pods ...*framework.PodInfo) *framework.Queued {
	return &framework.Queued{
		GroupKey: framework.GroupKey{Namespace: "default", Name: name},
		Group: &schedulingv1.PodGroup{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1.GangSchedulingPolicy{MinCount: int32(minCount)},
			}},
		},
		Pods: pods, Scheduled: scheduled,
	}
}

// TestScripts runs testdata/*.txt. Commands:
//
//	node NAME [RESOURCE=QUANTITY ...] [taint=key:value:effect] [label=key:value] [cordoned]
//	drop NAME
//	pod NAME [RESOURCE=QUANTITY ...] [node=] [tolerate=key] [select=key:value] [affinity=key:value] [name-is=NODE] [prefer=key:value]
//	gang NAME min=N pods=N [first=N] [RESOURCE=QUANTITY ...]
//
// pod and gang print where the pods go, or why not and which plugins wait.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			name := d.CmdArgs[0].Key
			switch d.Cmd {
			case "node":
				w.cache.SetNode(scriptNode(t, name, d.CmdArgs[1:]))
				return ""
			case "drop":
				w.cache.RemoveNode(name)
				return ""
			case "pod":
				p := scriptPod(t, name, d.CmdArgs[1:])
				return printed(w.decide(t, &framework.Queued{Pods: []*framework.PodInfo{info(t, p)}}))
			case "gang":
				var minCount, n, first int
				var rest []datadriven.CmdArg
				for _, a := range d.CmdArgs[1:] {
					switch a.Key {
					case "min":
						minCount, _ = strconv.Atoi(a.Vals[0])
					case "pods":
						n, _ = strconv.Atoi(a.Vals[0])
					case "first":
						first, _ = strconv.Atoi(a.Vals[0])
					default:
						rest = append(rest, a)
					}
				}
				var pods []*framework.PodInfo
				for i := range n {
					p := scriptPod(t, fmt.Sprintf("%s-%d", name, first+i), rest)
					p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(name)}
					pods = append(pods, info(t, p))
				}
				key := framework.GroupKey{Namespace: "default", Name: name}
				return printed(w.decide(t, gang(name, minCount, w.cache.Scheduled(key), pods...)))
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func printed(d Decision) string {
	var b strings.Builder
	if d.Err != nil {
		fmt.Fprintf(&b, "error: %v\n", d.Err)
	}
	for _, a := range d.Placed {
		fmt.Fprintf(&b, "%s → %s\n", a.Pod.Pod.GetMetadata().GetName(), a.Node)
	}
	for _, f := range d.Failed {
		fmt.Fprintf(&b, "%s: %s\n", f.Pod.Pod.GetMetadata().GetName(), f.Message)
	}
	if len(d.Plugins) > 0 {
		fmt.Fprintf(&b, "rejected by %s\n", strings.Join(d.Plugins, " "))
	}
	return b.String()
}

func pair(s string) (string, string) {
	k, v, _ := strings.Cut(s, ":")
	return k, v
}

func scriptNode(t testing.TB, name string, args []datadriven.CmdArg) *corev1.Node {
	n := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Spec:     &corev1.NodeSpec{},
		Status:   &corev1.NodeStatus{Allocatable: map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110"}},
	}
	for _, a := range args {
		switch a.Key {
		case "taint":
			part := strings.Split(a.Vals[0], ":")
			n.Spec.Taints = append(n.Spec.Taints, &corev1.Taint{Key: part[0], Value: proto.String(part[1]), Effect: part[2]})
		case "label":
			k, v := pair(a.Vals[0])
			n.Metadata.Labels[k] = v
		case "cordoned":
			n.Spec.Unschedulable = proto.Bool(true)
		case "gpu":
			n.Status.Allocatable["nvidia.com/gpu"] = a.Vals[0]
		default:
			n.Status.Allocatable[a.Key] = a.Vals[0]
		}
	}
	return n
}

func scriptPod(t testing.TB, name string, args []datadriven.CmdArg) *corev1.Pod {
	requests := map[string]string{}
	spec := &corev1.PodSpec{
		Containers: []*corev1.Container{{Name: "main", Resources: &corev1.ResourceRequirements{Requests: requests}}},
	}
	affinity := func() *corev1.NodeAffinity {
		if spec.Affinity == nil {
			spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		}
		return spec.Affinity.NodeAffinity
	}
	in := func(s string) []*corev1.NodeSelectorRequirement {
		k, v := pair(s)
		return []*corev1.NodeSelectorRequirement{{Key: k, Operator: "In", Values: strings.Split(v, "|")}}
	}
	for _, a := range args {
		switch a.Key {
		case "node":
			spec.NodeName = proto.String(a.Vals[0])
		case "tolerate":
			spec.Tolerations = append(spec.Tolerations, &corev1.Toleration{Key: proto.String(a.Vals[0]), Operator: proto.String("Exists")})
		case "select":
			k, v := pair(a.Vals[0])
			spec.NodeSelector = map[string]string{k: v}
		case "affinity":
			affinity().RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
				NodeSelectorTerms: []*corev1.NodeSelectorTerm{{MatchExpressions: in(a.Vals[0])}},
			}
		case "name-is":
			affinity().RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
				NodeSelectorTerms: []*corev1.NodeSelectorTerm{{MatchFields: in("metadata.name:" + a.Vals[0])}},
			}
		case "prefer":
			affinity().PreferredDuringSchedulingIgnoredDuringExecution = []*corev1.PreferredSchedulingTerm{{
				Weight: 10, Preference: &corev1.NodeSelectorTerm{MatchExpressions: in(a.Vals[0])},
			}}
		case "gpu":
			requests["nvidia.com/gpu"] = a.Vals[0]
		default:
			requests[a.Key] = a.Vals[0]
		}
	}
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name},
		Spec:     spec,
	}
}

// TestNeverOvercommits places random pods and gangs on random nodes, with pods and nodes going in between. No node ever
// holds more than it has, gangs are whole or absent, and an attempt leaves no trace in the snapshot.
func TestNeverOvercommits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fw, err := runtime.New(plugins.Default("default-scheduler"), runtime.Deps{})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{cache: cache.New(slog.New(slog.DiscardHandler)), on: map[string][]*framework.PodInfo{}}
		w.decider = NewDecider(fw, &w.snapshot, rapid.Uint64().Draw(t, "seed"))
		gpus := map[string]int64{}
		n := 0
		newPod := func(t *rapid.T) *framework.PodInfo {
			n++
			p := scriptPod(nil, fmt.Sprintf("p%d", n), []datadriven.CmdArg{
				{Key: "cpu", Vals: []string{fmt.Sprintf("%dm", rapid.IntRange(0, 2500).Draw(t, "cpu"))}},
				{Key: "gpu", Vals: []string{fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "gpu"))}},
			})
			i, err := framework.NewPodInfo(p)
			if err != nil {
				t.Fatal(err)
			}
			return i
		}
		attempt := func(t *rapid.T, q *framework.Queued) {
			if err := w.cache.Update(&w.snapshot); err != nil {
				t.Fatal(err)
			}
			before := dump(&w.snapshot)
			d := w.decider.Decide(context.Background(), q, nil)
			if after := dump(&w.snapshot); !slices.EqualFunc(before, after, same) {
				t.Fatalf("the attempt changed the snapshot:\n%+v\n%+v", before, after)
			}
			if d.Err != nil {
				t.Fatal(d.Err)
			}
			if k := len(d.Placed); k > 0 && k+q.Scheduled < q.MinCount() {
				t.Fatalf("%d of %d placed", k, q.MinCount())
			}
			if len(d.Placed)+len(d.Failed) != len(q.Pods) {
				t.Fatalf("%d placed and %d failed of %d", len(d.Placed), len(d.Failed), len(q.Pods))
			}
			for _, a := range d.Placed {
				if err := w.cache.Assume(a.Pod, a.Node); err != nil {
					t.Fatal(err)
				}
				w.on[a.Node] = append(w.on[a.Node], a.Pod)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"node": func(t *rapid.T) {
				name := fmt.Sprintf("n%d", rapid.IntRange(0, 4).Draw(t, "node"))
				if gpus[name] != 0 {
					t.Skip("exists")
				}
				gpus[name] = int64(rapid.IntRange(1, 8).Draw(t, "gpus"))
				w.cache.SetNode(scriptNode(nil, name, []datadriven.CmdArg{{Key: "gpu", Vals: []string{fmt.Sprint(gpus[name])}}}))
			},
			"pod": func(t *rapid.T) { attempt(t, &framework.Queued{Pods: []*framework.PodInfo{newPod(t)}}) },
			"gang": func(t *rapid.T) {
				k := rapid.IntRange(1, 6).Draw(t, "pods")
				pods := make([]*framework.PodInfo, k)
				for i := range pods {
					pods[i] = newPod(t)
				}
				attempt(t, gang(fmt.Sprintf("g%d", n), rapid.IntRange(1, k).Draw(t, "min"), 0, pods...))
			},
			"pod goes": func(t *rapid.T) {
				nodes := slices.Sorted(maps.Keys(w.on))
				if len(nodes) == 0 {
					t.Skip("none")
				}
				node := rapid.SampledFrom(nodes).Draw(t, "node")
				w.cache.RemovePod(w.on[node][0].UID())
				if w.on[node] = w.on[node][1:]; len(w.on[node]) == 0 {
					delete(w.on, node)
				}
			},
			"": func(t *rapid.T) {
				for node, pods := range w.on {
					var sum framework.Resource
					for _, p := range pods {
						sum.Add(&p.Request)
					}
					if sum.MilliCPU > 4000 || sum.Scalar["nvidia.com/gpu"] > gpus[node] {
						t.Fatalf("node %s holds %+v, has 4 cpu and %d gpus", node, sum, gpus[node])
					}
				}
			},
		})
	})
}

// dump is all of a snapshot that plugins can see.
func dump(s *cache.Snapshot) []framework.NodeInfo {
	var out []framework.NodeInfo
	for _, n := range s.Nodes() {
		var c framework.NodeInfo
		c.CopyFrom(n)
		out = append(out, c)
	}
	return out
}

func same(a, b framework.NodeInfo) bool {
	eq := func(x, y framework.Resource) bool {
		scalars := maps.Equal(x.Scalar, y.Scalar)
		x.Scalar, y.Scalar = nil, nil
		return scalars && reflect.DeepEqual(x, y)
	}
	return a.Node == b.Node && a.Generation == b.Generation && slices.Equal(a.Pods, b.Pods) &&
		eq(a.Requested, b.Requested) && eq(a.Scored, b.Scored) && eq(a.Allocatable, b.Allocatable)
}

// TestSameSeedSameChoices runs the same input twice.
func TestSameSeedSameChoices(t *testing.T) {
	run := func() (got []string) {
		w := newWorld(t)
		for i := range 7 {
			w.cache.SetNode(scriptNode(t, fmt.Sprintf("n%d", i), nil))
		}
		for i := range 50 {
			d := w.decide(t, &framework.Queued{Pods: []*framework.PodInfo{info(t, scriptPod(t, fmt.Sprint(i), nil))}})
			got = append(got, d.Placed[0].Node)
		}
		return got
	}
	first := run()
	if diff := cmp.Diff(first, run()); diff != "" {
		t.Errorf("second run differs:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n0"}, first[:8]); diff != "" {
		t.Errorf("equals do not take turns (-want +got):\n%s", diff)
	}
}

type panicky struct{}

func (panicky) Name() string { return "Panicky" }
func (panicky) Filter(*framework.CycleState, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	panic("oops")
}

func TestPluginPanicFailsTheAttemptOnly(t *testing.T) {
	w := newWorld(t, framework.Registration{New: framework.Use(panicky{})})
	w.cache.SetNode(scriptNode(t, "n1", nil))
	d := w.decide(t, &framework.Queued{Pods: []*framework.PodInfo{info(t, scriptPod(t, "a", nil))}})
	if d.Err == nil || !strings.Contains(d.Err.Error(), "oops") || len(d.Placed) != 0 {
		t.Errorf("decision = %+v, want an error that tells of the panic", d)
	}
}

// BenchmarkScheduleOne decides on one pod: unwatched, watched as every attempt is, and with its plugins measured as those
// attempts are whose traces are recorded.
func BenchmarkScheduleOne(b *testing.B) {
	all := func(*framework.PodInfo) bool { return true }
	for _, test := range []struct {
		name  string
		nodes int
		watch *Watch
	}{
		{"100", 100, nil},
		{"1000", 1000, nil},
		{"1000/watched", 1000, &Watch{}},
		{"1000/measured", 1000, &Watch{Measure: all}},
		{"5000", 5000, nil},
		{"5000/watched", 5000, &Watch{}},
		{"5000/measured", 5000, &Watch{Measure: all}},
	} {
		b.Run(test.name, func(b *testing.B) {
			nodes := test.nodes
			w := newWorld(b)
			for i := range nodes {
				w.cache.SetNode(scriptNode(b, fmt.Sprintf("n%05d", i), []datadriven.CmdArg{{Key: "cpu", Vals: []string{"64"}}, {Key: "memory", Vals: []string{"256Gi"}}}))
			}
			args := []datadriven.CmdArg{{Key: "cpu", Vals: []string{"100m"}}, {Key: "memory", Vals: []string{"500Mi"}}}
			pods := make([]*framework.PodInfo, b.N)
			for i := range pods {
				pods[i] = info(b, scriptPod(b, fmt.Sprint(i), args))
			}
			room := nodes * 100
			b.ReportAllocs()
			b.ResetTimer()
			for i, p := range pods {
				if d := w.decideWatched(b, &framework.Queued{Pods: []*framework.PodInfo{p}}, test.watch); len(d.Placed) != 1 {
					b.Fatalf("pod %d: %+v", i, d)
				}
				if test.watch != nil {
					test.watch.reset()
				}
				if i >= room {
					w.cache.RemovePod(pods[i-room].UID())
				}
			}
		})
	}
}
