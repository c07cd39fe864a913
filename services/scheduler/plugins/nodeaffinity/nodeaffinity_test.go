package nodeaffinity

import (
	"testing"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func TestMatchesTerm(t *testing.T) {
	labels := map[string]string{"disk": "ssd", "gen": "12", "bad": "x"}
	for _, tc := range []struct {
		key, op string
		values  []string
		want    bool
	}{
		{"disk", "In", []string{"hdd", "ssd"}, true},
		{"disk", "In", []string{"hdd"}, false},
		{"none", "In", []string{"hdd"}, false},
		{"disk", "NotIn", []string{"hdd"}, true},
		{"disk", "NotIn", []string{"ssd"}, false},
		{"none", "NotIn", []string{"ssd"}, true},
		{"disk", "Exists", nil, true},
		{"none", "Exists", nil, false},
		{"disk", "DoesNotExist", nil, false},
		{"none", "DoesNotExist", nil, true},
		{"gen", "Gt", []string{"11"}, true},
		{"gen", "Gt", []string{"12"}, false},
		{"gen", "Lt", []string{"13"}, true},
		{"gen", "Lt", []string{"x"}, false},
		{"bad", "Gt", []string{"1"}, false},
		{"none", "Lt", []string{"1"}, false},
		{"disk", "Like", []string{"s"}, false},
	} {
		term := &corev1.NodeSelectorTerm{MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: tc.key, Operator: tc.op, Values: tc.values}}}
		if got := matchesTerm(term, labels, "n1"); got != tc.want {
			t.Errorf("%s %s %v = %t, want %t", tc.key, tc.op, tc.values, got, tc.want)
		}
	}
	if matchesTerm(&corev1.NodeSelectorTerm{}, labels, "n1") {
		t.Error("an empty term matched")
	}
}

func TestNodeNames(t *testing.T) {
	field := func(values ...string) *corev1.NodeSelectorRequirement {
		return &corev1.NodeSelectorRequirement{Key: fieldName, Operator: "In", Values: values}
	}
	label := &corev1.NodeSelectorTerm{MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: "a", Operator: "Exists"}}}
	term := func(fields ...*corev1.NodeSelectorRequirement) *corev1.NodeSelectorTerm {
		return &corev1.NodeSelectorTerm{MatchFields: fields}
	}
	for _, tc := range []struct {
		name  string
		terms []*corev1.NodeSelectorTerm
		want  []string
		all   bool
	}{
		{"two terms", []*corev1.NodeSelectorTerm{term(field("a")), term(field("b"))}, []string{"a", "b"}, false},
		{"one term without a name opens it", []*corev1.NodeSelectorTerm{term(field("a")), label}, nil, true},
		{"both of one term must hold", []*corev1.NodeSelectorTerm{term(field("a", "b"), field("b", "c"))}, []string{"b"}, false},
		{"contradiction", []*corev1.NodeSelectorTerm{term(field("a"), field("b"))}, nil, false},
	} {
		got := nodeNames(&corev1.NodeSelector{NodeSelectorTerms: tc.terms})
		if (got == nil) != tc.all || len(got) != len(tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		for _, w := range tc.want {
			if _, ok := got[w]; !ok {
				t.Errorf("%s: %s is missing in %v", tc.name, w, got)
			}
		}
	}
}
