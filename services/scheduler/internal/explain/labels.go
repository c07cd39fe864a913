package explain

import (
	"maps"
	"slices"
	"strings"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// unmatched is what a pod wants of a node's labels that no node has.
type unmatched struct {
	// field of the pod that says so.
	field string
	// key of the label and values of which one is wanted; no values where any would do.
	key    string
	values []string
	// there are values that nodes have instead.
	there []string
}

// unmatchedOf finds the first wish for a label that no node meets; nil where each is met somewhere, if not all by one node.
// Of several terms of an affinity any would do, so they are looked at only where there is one.
func unmatchedOf(nodes []*framework.NodeInfo, spec *corev1.PodSpec) *unmatched {
	selector := spec.GetNodeSelector()
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if u := unmet(nodes, "spec.nodeSelector", key, []string{selector[key]}); u != nil {
			return u
		}
	}
	terms := spec.GetAffinity().GetNodeAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution().GetNodeSelectorTerms()
	if len(terms) != 1 {
		return nil
	}
	for _, r := range terms[0].GetMatchExpressions() {
		if r.GetOperator() != "In" && r.GetOperator() != "Exists" {
			continue
		}
		if u := unmet(nodes, "spec.affinity.nodeAffinity", r.GetKey(), r.GetValues()); u != nil {
			return u
		}
	}
	return nil
}

func unmet(nodes []*framework.NodeInfo, field, key string, values []string) *unmatched {
	there := map[string]struct{}{}
	for _, n := range nodes {
		have, ok := n.Labels()[key]
		if ok && (len(values) == 0 || slices.Contains(values, have)) {
			return nil
		}
		if ok {
			there[have] = struct{}{}
		}
	}
	return &unmatched{field: field, key: key, values: values, there: slices.Sorted(maps.Keys(there))}
}

// label is what would do.
func (u *unmatched) label() string {
	if len(u.values) == 0 {
		return u.key
	}
	return u.key + "=" + strings.Join(u.values, " or ")
}
