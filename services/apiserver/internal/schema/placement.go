package schema

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// checkNodeSelectorTerm checks labels of nodes that a term asks for, and the one field of nodes that it may.
func checkNodeSelectorTerm(p *path, t *corev1.NodeSelectorTerm, out *violations) {
	for i, r := range t.GetMatchExpressions() {
		here := p.field("matchExpressions").item(i)
		if r.GetKey() != "" {
			words(validation.IsQualifiedName)(here.field("key"), r.GetKey(), out)
		}
		if r.GetOperator() != "In" && r.GetOperator() != "NotIn" {
			continue
		}
		for j, v := range r.GetValues() {
			words(validation.IsValidLabelValue)(here.field("values").item(j), v, out)
		}
	}
	for i, r := range t.GetMatchFields() {
		here := p.field("matchFields").item(i)
		if r.GetKey() != "" && r.GetKey() != "metadata.name" {
			out.invalid(here.field("key"), strconv.Quote(r.GetKey()), "not a valid field selector key")
		}
		switch r.GetOperator() {
		case "", "In", "NotIn":
			if len(r.GetValues()) > 1 {
				out.invalid(here.field("values"), "(values)", "must have one element")
			}
			for j, v := range r.GetValues() {
				words(validation.IsDNS1123Subdomain)(here.field("values").item(j), v, out)
			}
		default:
			out.invalid(here.field("operator"), strconv.Quote(r.GetOperator()), "not a valid selector operator")
		}
	}
}

func checkAffinityTerm(p *path, t *corev1.PodAffinityTerm, out *violations) {
	labelKeys(p.field("matchLabelKeys"), t.GetMatchLabelKeys(), t.GetLabelSelector(), out)
	labelKeys(p.field("mismatchLabelKeys"), t.GetMismatchLabelKeys(), t.GetLabelSelector(), out)
}

func checkSpread(p *path, c *corev1.TopologySpreadConstraint, out *violations) {
	if c.MinDomains != nil && c.GetWhenUnsatisfiable() != "DoNotSchedule" {
		out.invalid(p.field("minDomains"), strconv.Itoa(int(c.GetMinDomains())),
			"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "+c.GetWhenUnsatisfiable())
	}
	labelKeys(p.field("matchLabelKeys"), c.GetMatchLabelKeys(), c.GetLabelSelector(), out)
}

// labelKeys checks keys whose values a pod itself gives to a selector.
func labelKeys(p *path, keys []string, ls *metav1.LabelSelector, out *violations) {
	if len(keys) > 0 && ls == nil {
		out.forbidden(p, "must not be specified when labelSelector is not set")
	}
	for i, k := range keys {
		words(validation.IsQualifiedName)(p.item(i), k, out)
	}
}

func checkTaint(p *path, t *corev1.Taint, out *violations) {
	words(validation.IsValidLabelValue)(p.field("value"), t.GetValue(), out)
}
