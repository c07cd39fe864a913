package nodeaffinity

import (
	"slices"
	"strconv"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

const fieldName = "metadata.name"

// matchesSelector reports whether one of the terms matches.
func matchesSelector(selector *corev1.NodeSelector, labels map[string]string, name string) bool {
	for _, term := range selector.GetNodeSelectorTerms() {
		if matchesTerm(term, labels, name) {
			return true
		}
	}
	return false
}

// matchesTerm reports whether all requirements of the term hold. An empty term matches nothing.
func matchesTerm(term *corev1.NodeSelectorTerm, labels map[string]string, name string) bool {
	if len(term.GetMatchExpressions()) == 0 && len(term.GetMatchFields()) == 0 {
		return false
	}
	for _, r := range term.GetMatchFields() {
		if r.GetKey() != fieldName || !matches(r, name, true) {
			return false
		}
	}
	for _, r := range term.GetMatchExpressions() {
		value, ok := labels[r.GetKey()]
		if !matches(r, value, ok) {
			return false
		}
	}
	return true
}

func matches(r *corev1.NodeSelectorRequirement, value string, present bool) bool {
	switch r.GetOperator() {
	case "In":
		return present && slices.Contains(r.GetValues(), value)
	case "NotIn":
		// A node without the label does not have any of the values either.
		return !present || !slices.Contains(r.GetValues(), value)
	case "Exists":
		return present
	case "DoesNotExist":
		return !present
	case "Gt", "Lt":
		if !present || len(r.GetValues()) != 1 {
			return false
		}
		have, err1 := strconv.ParseInt(value, 10, 64)
		bound, err2 := strconv.ParseInt(r.GetValues()[0], 10, 64)
		if err1 != nil || err2 != nil {
			return false
		}
		if r.GetOperator() == "Gt" {
			return have > bound
		}
		return have < bound
	}
	return false
}

// nodeNames returns the only nodes that can match, where every term names nodes; nil where some term does not.
func nodeNames(selector *corev1.NodeSelector) map[string]struct{} {
	all := make(map[string]struct{})
	for _, term := range selector.GetNodeSelectorTerms() {
		var names map[string]struct{}
		for _, r := range term.GetMatchFields() {
			if r.GetKey() != fieldName || r.GetOperator() != "In" {
				continue
			}
			set := make(map[string]struct{}, len(r.GetValues()))
			for _, v := range r.GetValues() {
				if _, ok := names[v]; ok || names == nil {
					set[v] = struct{}{}
				}
			}
			names = set
		}
		if names == nil {
			return nil
		}
		for n := range names {
			all[n] = struct{}{}
		}
	}
	return all
}
