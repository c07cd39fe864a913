package interpodaffinity

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/plugintest"
)

var topologies = []string{framework.LabelHostname, framework.LabelZone, "disk"}

func drawTerm(t *rapid.T) *corev1.PodAffinityTerm {
	term := &corev1.PodAffinityTerm{TopologyKey: rapid.SampledFrom(topologies).Draw(t, "topology"), LabelSelector: plugintest.Selector(t)}
	switch rapid.IntRange(0, 4).Draw(t, "namespaces") {
	case 0:
		term.Namespaces = []string{"one", "two"}
	case 1:
		term.NamespaceSelector = &metav1.LabelSelector{}
	case 2:
		term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "two"}}
	}
	return term
}

// drawAffinity gives a pod terms, each kind now and then.
func drawAffinity(t *rapid.T) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		terms := func(name string) (out []*corev1.PodAffinityTerm) {
			for range max(0, rapid.IntRange(-2, 2).Draw(t, name)) {
				out = append(out, drawTerm(t))
			}
			return out
		}
		weighted := func(name string) (out []*corev1.WeightedPodAffinityTerm) {
			for range max(0, rapid.IntRange(-2, 2).Draw(t, name)) {
				out = append(out, &corev1.WeightedPodAffinityTerm{
					Weight: int32(rapid.IntRange(1, 100).Draw(t, "weight")), PodAffinityTerm: drawTerm(t),
				})
			}
			return out
		}
		p.Spec.Affinity = &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution:  terms("required"),
				PreferredDuringSchedulingIgnoredDuringExecution: weighted("preferred"),
			},
			PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution:  terms("required against"),
				PreferredDuringSchedulingIgnoredDuringExecution: weighted("preferred against"),
			},
		}
	}
}

// reference is the plugin as Kubernetes describes it: every question is answered by looking at all nodes and pods.
type reference struct {
	pod *framework.PodInfo
	s   *framework.Snapshot
}

// near are the pods on nodes with the same value of the label as n has.
func (r *reference) near(n *framework.NodeInfo, key string) (out []*framework.PodInfo) {
	here, ok := n.Labels()[key]
	if !ok {
		return nil
	}
	for _, o := range r.s.Nodes() {
		if v, ok := o.Labels()[key]; ok && v == here {
			out = append(out, o.Pods...)
		}
	}
	return out
}

func (r *reference) all(p *framework.PodInfo) bool {
	for _, t := range r.pod.Affinity.Required {
		if !t.Matches(p, r.s.NamespaceLabels) {
			return false
		}
	}
	return true
}

func (r *reference) affinity(n *framework.NodeInfo) bool {
	satisfied := true
	for _, t := range r.pod.Affinity.Required {
		if _, ok := n.Labels()[t.TopologyKey]; !ok {
			return false
		}
		found := false
		for _, p := range r.near(n, t.TopologyKey) {
			found = found || r.all(p)
		}
		satisfied = satisfied && found
	}
	if satisfied {
		return true
	}
	// The first of its kind may go anywhere, if no pod that it wants is in any topology at all.
	for _, o := range r.s.Nodes() {
		for _, p := range o.Pods {
			for _, t := range r.pod.Affinity.Required {
				if _, ok := o.Labels()[t.TopologyKey]; ok && r.all(p) {
					return false
				}
			}
		}
	}
	return r.all(r.pod)
}

func (r *reference) filter(n *framework.NodeInfo) *framework.Status {
	a := r.pod.Affinity
	if a != nil && len(a.Required) > 0 && !r.affinity(n) {
		return notNear
	}
	if a != nil {
		for _, t := range a.AntiRequired {
			for _, p := range r.near(n, t.TopologyKey) {
				if t.Matches(p, r.s.NamespaceLabels) {
					return tooNear
				}
			}
		}
	}
	for _, key := range topologies {
		for _, p := range r.near(n, key) {
			if p.Affinity == nil {
				continue
			}
			for _, t := range p.Affinity.AntiRequired {
				if t.TopologyKey == key && t.Matches(r.pod, r.s.NamespaceLabels) {
					return kept
				}
			}
		}
	}
	return nil
}

func (r *reference) score(n *framework.NodeInfo) (sum int64) {
	own := r.pod.Affinity
	if own == nil {
		own = &framework.PodAffinity{}
	}
	for _, key := range topologies {
		for _, p := range r.near(n, key) {
			wish := func(list []framework.WeightedPodTerm, target *framework.PodInfo, sign int64) {
				for _, t := range list {
					if t.TopologyKey == key && t.Matches(target, r.s.NamespaceLabels) {
						sum += sign * int64(t.Weight)
					}
				}
			}
			wish(own.Preferred, p, 1)
			wish(own.AntiPreferred, p, -1)
			if p.Affinity == nil {
				continue
			}
			wish(p.Affinity.Preferred, r.pod, 1)
			wish(p.Affinity.AntiPreferred, r.pod, -1)
			for _, t := range p.Affinity.Required {
				if t.TopologyKey == key && t.Matches(r.pod, r.s.NamespaceLabels) {
					sum++
				}
			}
		}
	}
	return sum
}

func newPlugin(t interface{ Fatal(...any) }, h framework.Handle) *Plugin {
	p, err := New(h, DefaultArgs())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFilterEqualsScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, pods := plugintest.Cluster(t, drawAffinity(t))
		pod := plugintest.Pod(t, "new", drawAffinity(t))
		h := &plugintest.Handle{State: plugintest.Snapshot(t, nodes, pods)}
		p := newPlugin(t, h)
		state := framework.NewCycleState()
		before := plugintest.Filter(t, p, state, pod, h.State)
		r := reference{pod, h.State}
		for _, n := range h.State.Nodes() {
			// Where PreFilter skips the plugin nothing is rejected.
			if want := r.filter(n).WithPlugin(Name); !want.Equal(before[n.Name()]) {
				t.Fatalf("node %s: got %v, want %v", n.Name(), before[n.Name()], want)
			}
		}
		if before == nil {
			return
		}
		clone := state.Clone()
		extra := plugintest.Pod(t, "extra", drawAffinity(t))
		target := rapid.SampledFrom(h.State.Nodes()).Draw(t, "target")
		p.AddPod(clone, pod, extra, target)
		thought := plugintest.Judge(t, p, clone, pod, h.State)
		p.RemovePod(clone, pod, extra, target)
		for name, st := range plugintest.Judge(t, p, clone, pod, h.State) {
			if !st.Equal(before[name]) {
				t.Fatalf("node %s after coming and going: got %v, want %v", name, st, before[name])
			}
		}
		h.State.Assume(extra, target.Name())
		for _, n := range h.State.Nodes() {
			if want := r.filter(n).WithPlugin(Name); !want.Equal(thought[n.Name()]) {
				t.Fatalf("node %s with one more on %s: got %v, want %v", n.Name(), target.Name(), thought[n.Name()], want)
			}
		}
	})
}

func TestScoreEqualsScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, pods := plugintest.Cluster(t, drawAffinity(t))
		pod := plugintest.Pod(t, "new", drawAffinity(t))
		h := &plugintest.Handle{State: plugintest.Snapshot(t, nodes, pods)}
		raw, normal := plugintest.Score(t, newPlugin(t, h), framework.NewCycleState(), pod, h.State, h.State.Positions())
		r := reference{pod, h.State}
		var lowest, highest int64 = math.MaxInt64, math.MinInt64
		for k, n := range h.State.Nodes() {
			want := r.score(n)
			lowest, highest = min(lowest, want), max(highest, want)
			if raw == nil && want != 0 || raw != nil && raw[k] != want {
				t.Fatalf("node %s: got %v, want %d", n.Name(), raw, want)
			}
		}
		for k, got := range normal {
			want := int64(0)
			if highest > lowest {
				want = int64(100 * (float64(raw[k]-lowest) / float64(highest-lowest)))
			}
			if got != want {
				t.Fatalf("normalised %d, want %d", got, want)
			}
		}
	})
}

// TestHints: what other pods do wakes a pod that they concern, and no other.
func TestHints(t *testing.T) {
	info := func(name, app string, affinity *corev1.Affinity) *framework.PodInfo {
		p, err := framework.NewPodInfo(&corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "one", Name: name, Uid: name, Labels: map[string]string{"app": app}},
			Spec:     &corev1.PodSpec{Affinity: affinity},
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	term := func(app string) []*corev1.PodAffinityTerm {
		return []*corev1.PodAffinityTerm{{TopologyKey: framework.LabelZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	}
	wants := info("wants", "w", &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term("db")}})
	avoids := info("avoids", "a", &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term("noise")}})
	db, noise, web := info("db", "db", nil), info("noise", "noise", nil), info("web", "web", nil)
	guard := info("guard", "g", &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term("web")}})
	p := newPlugin(t, &plugintest.Handle{})
	for _, tc := range []struct {
		name     string
		pod      *framework.PodInfo
		old, new *framework.PodInfo
		want     framework.Hint
	}{
		{"the wanted one comes", wants, nil, db, framework.Queue},
		{"another one comes", wants, nil, web, framework.QueueSkip},
		{"one becomes the wanted one", wants, web, db, framework.Queue},
		{"the wanted one stays", wants, db, db, framework.QueueSkip},
		{"the avoided one goes", avoids, noise, nil, framework.Queue},
		{"the avoided one changes", avoids, noise, web, framework.Queue},
		{"another one goes", avoids, web, nil, framework.QueueSkip},
		{"the avoided one comes", avoids, nil, noise, framework.QueueSkip},
		{"one that kept it away goes", web, guard, nil, framework.Queue},
		{"one that kept others away goes", db, guard, nil, framework.QueueSkip},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := p.afterPod(tc.pod, &framework.Change{OldPod: tc.old, NewPod: tc.new}); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	selects := info("selects", "s", nil)
	selects.Pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{
		TopologyKey: framework.LabelZone, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}},
	}}}}
	if afterNamespace(selects, nil) != framework.Queue || afterNamespace(wants, nil) != framework.QueueSkip {
		t.Error("namespaces wake those that select by their labels, and no other")
	}
}

func TestSign(t *testing.T) {
	p := newPlugin(t, &plugintest.Handle{})
	pod := func(app string, affinity *corev1.Affinity) *framework.PodInfo {
		info, err := framework.NewPodInfo(&corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "one", Labels: map[string]string{"app": app}}, Spec: &corev1.PodSpec{Affinity: affinity},
		})
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	sign := func(i *framework.PodInfo) (string, bool) {
		var s framework.Signature
		ok := p.Sign(i, &s)
		return string(s.Bytes()), ok
	}
	a, ok := sign(pod("a", nil))
	same, _ := sign(pod("a", nil))
	other, _ := sign(pod("b", nil))
	if !ok || a != same || a == other {
		t.Errorf("signatures %q, %q of equals and %q of another", a, same, other)
	}
	if _, ok := sign(pod("a", &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{TopologyKey: framework.LabelZone}},
	}})); ok {
		t.Error("a pod with terms was signed")
	}
}
