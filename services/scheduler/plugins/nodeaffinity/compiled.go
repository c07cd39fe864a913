package nodeaffinity

import (
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// compiled is a term over columns: each requirement looked at once per value of its label instead of once per node.
type compiled struct {
	requirements []requirement
	never        bool
}

// requirement holds where ok says so of the number of the node's value.
type requirement struct {
	values []int32
	ok     []bool
	// name is set for metadata.name, which has no column.
	name *corev1.NodeSelectorRequirement
}

func compile(term *corev1.NodeSelectorTerm, nodes *framework.Columns) compiled {
	c := compiled{never: len(term.GetMatchExpressions()) == 0 && len(term.GetMatchFields()) == 0}
	for _, r := range term.GetMatchFields() {
		if r.GetKey() != fieldName {
			c.never = true
		}
		c.requirements = append(c.requirements, requirement{name: r})
	}
	for _, r := range term.GetMatchExpressions() {
		c.requirements = append(c.requirements, compileLabel(r, nodes))
	}
	return c
}

func compileLabel(r *corev1.NodeSelectorRequirement, nodes *framework.Columns) requirement {
	column := nodes.Label(r.GetKey())
	out := requirement{values: column.Values, ok: make([]bool, column.Count())}
	switch r.GetOperator() {
	case "In", "NotIn":
		in := r.GetOperator() == "In"
		if !in {
			for id := range out.ok {
				out.ok[id] = true
			}
		}
		for _, v := range r.GetValues() {
			if id, ok := column.ID(v); ok {
				out.ok[id] = in
			}
		}
	default:
		for id := range out.ok {
			out.ok[id] = matches(r, column.Name(int32(id)), id != 0)
		}
	}
	return out
}

func (c *compiled) matches(nodes *framework.Columns, i int32) bool {
	if c.never {
		return false
	}
	for k := range c.requirements {
		r := &c.requirements[k]
		if r.name != nil {
			if !matches(r.name, nodes.Nodes[i].Name(), true) {
				return false
			}
		} else if !r.ok[r.values[i]] {
			return false
		}
	}
	return true
}

// FilterPass implements framework.FilterPassPlugin.
func (p Plugin) FilterPass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, verdicts *framework.Verdicts) *framework.Status {
	spec := pod.Pod.GetSpec()
	var selector compiled
	for k, v := range spec.GetNodeSelector() {
		selector.requirements = append(selector.requirements,
			compileLabel(&corev1.NodeSelectorRequirement{Key: k, Operator: "In", Values: []string{v}}, nodes))
	}
	required := required(spec)
	var terms []compiled
	for _, t := range required.GetNodeSelectorTerms() {
		terms = append(terms, compile(t, nodes))
	}
	var added []compiled
	for _, t := range p.added.GetNodeSelectorTerms() {
		added = append(added, compile(t, nodes))
	}
	for _, i := range open {
		if p.added != nil && !slices.ContainsFunc(added, func(t compiled) bool { return t.matches(nodes, i) }) {
			verdicts.Reject(i, verdicts.Reason(enforced))
			continue
		}
		if !selector.matches(nodes, i) ||
			(required != nil && !slices.ContainsFunc(terms, func(t compiled) bool { return t.matches(nodes, i) })) {
			verdicts.Reject(i, verdicts.Reason(rejected))
		}
	}
	return nil
}

// ScorePass implements framework.ScorePassPlugin.
func (p Plugin) ScorePass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, feasible []int32, scores []int64) *framework.Status {
	clear(scores)
	for _, term := range slices.Concat(preferred(pod.Pod.GetSpec()), p.preferred) {
		c, weight := compile(term.GetPreference(), nodes), int64(term.GetWeight())
		for k, i := range feasible {
			if c.matches(nodes, i) {
				scores[k] += weight
			}
		}
	}
	return nil
}

// NormalizesByMax implements framework.MaxNormalizer.
func (Plugin) NormalizesByMax() bool { return false }

// Sign implements framework.SignPlugin.
func (Plugin) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	spec := pod.Pod.GetSpec()
	if len(spec.GetNodeSelector()) > 0 && signature.Field("nodeSelector") {
		signature.Map(spec.GetNodeSelector())
	}
	if r := required(spec); r != nil && signature.Field("nodeAffinity") {
		signature.Int(int64(len(r.GetNodeSelectorTerms())))
		for _, t := range r.GetNodeSelectorTerms() {
			signTerm(t, signature)
		}
	}
	if p := preferred(spec); len(p) > 0 && signature.Field("preferredNodeAffinity") {
		signature.Int(int64(len(p)))
		for _, t := range p {
			signature.Int(int64(t.GetWeight()))
			signTerm(t.GetPreference(), signature)
		}
	}
	return true
}

func signTerm(t *corev1.NodeSelectorTerm, signature *framework.Signature) {
	for _, list := range [][]*corev1.NodeSelectorRequirement{t.GetMatchFields(), t.GetMatchExpressions()} {
		signature.Int(int64(len(list)))
		for _, r := range list {
			signature.Text(r.GetKey())
			signature.Text(r.GetOperator())
			signature.Int(int64(len(r.GetValues())))
			for _, v := range r.GetValues() {
				signature.Text(v)
			}
		}
	}
}
