package podtopologyspread

import (
	"fmt"
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/nodeaffinity"
)

// constraint is one constraint of one pod, read.
type constraint struct {
	key      string
	maxSkew  int32
	hard     bool
	selector *framework.PodSelector
	// self is 1 where the pod counts itself.
	self int32
	// minDomains below which the emptiest domain is taken to be empty.
	minDomains int32
	// honorAffinity and honorTaints leave out nodes on which the pod cannot be anyway.
	honorAffinity, honorTaints bool
}

// constraints are the pod's own, or the defaults. byDefault tells which.
func (p *Plugin) constraints(pod *framework.PodInfo) (out []constraint, byDefault bool, err error) {
	if len(pod.Pod.GetSpec().GetTopologySpreadConstraints()) > 0 {
		out, err = explicit(pod)
		return out, false, err
	}
	if len(p.defaults) == 0 {
		return nil, true, nil
	}
	labels := p.defaultSelector(pod)
	if labels == nil {
		return nil, true, nil
	}
	for _, d := range p.defaults {
		c, err := read(pod, &corev1.TopologySpreadConstraint{
			MaxSkew: d.MaxSkew, TopologyKey: d.TopologyKey, WhenUnsatisfiable: d.WhenUnsatisfiable, LabelSelector: labels,
		})
		if err != nil {
			return nil, true, err
		}
		out = append(out, c)
	}
	return out, true, nil
}

func explicit(pod *framework.PodInfo) ([]constraint, error) {
	var out []constraint
	for i, t := range pod.Pod.GetSpec().GetTopologySpreadConstraints() {
		c, err := read(pod, t)
		if err != nil {
			return nil, fmt.Errorf("spec.topologySpreadConstraints[%d]: %w", i, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func read(pod *framework.PodInfo, t *corev1.TopologySpreadConstraint) (constraint, error) {
	c := constraint{
		key: t.GetTopologyKey(), maxSkew: t.GetMaxSkew(), hard: t.GetWhenUnsatisfiable() == doNotSchedule,
		minDomains:    max(1, t.GetMinDomains()),
		honorAffinity: t.GetNodeAffinityPolicy() != "Ignore" && nodeaffinity.Constrains(pod.Pod),
		honorTaints:   t.GetNodeTaintsPolicy() == "Honor",
	}
	var labels *metav1.LabelSelector = framework.WithLabelKeys(t.GetLabelSelector(), pod.Labels(), t.GetMatchLabelKeys())
	var err error
	c.selector, err = framework.NewPodSelector(framework.PodSelectorConfig{
		Namespaces: []string{pod.Namespace()}, Labels: labels, SkipTerminating: true,
	})
	if err != nil {
		return constraint{}, err
	}
	if c.selector.Matches(pod, noLabels) {
		c.self = 1
	}
	return c, nil
}

// honors reports whether the constraint's policies let the node count.
func (c *constraint) honors(pod *framework.PodInfo, node *corev1.Node) bool {
	if c.honorAffinity && !nodeaffinity.Matches(pod.Pod, node) {
		return false
	}
	return !c.honorTaints || framework.UntoleratedTaint(node.GetSpec().GetTaints(), pod.Pod.GetSpec().GetTolerations()) == nil
}

// counted are the nodes that count for constraint c: those with all labels, that its policies honor, and that are in the
// placement which is being tried. Nil stands for all.
func counted(c *constraint, pod *framework.PodInfo, snapshot *framework.Snapshot, labels []*framework.LabelColumn) []bool {
	placed := snapshot.Placement() != nil && snapshot.Placement().Positions != nil
	policies := c.honorAffinity || c.honorTaints
	without := func(l *framework.LabelColumn) bool { return slices.Contains(l.Values, 0) }
	if !placed && !policies && !slices.ContainsFunc(labels, without) {
		return nil // what most pods ask for, in most clusters
	}
	nodes := snapshot.Nodes()
	var out []bool
	leave := func(i int) {
		if out == nil {
			out = make([]bool, len(nodes))
			for k := range i {
				out[k] = true
			}
		}
	}
	for i, n := range nodes {
		ok := true
		for _, l := range labels {
			if l.Values[i] == 0 {
				ok = false
				break
			}
		}
		if ok && placed {
			ok = snapshot.InPlacement(int32(i))
		}
		if ok && policies {
			ok = c.honors(pod, n.Node)
		}
		if !ok {
			leave(i)
		} else if out != nil {
			out[i] = true
		}
	}
	return out
}
