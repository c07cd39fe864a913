package selector_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/selector"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func TestLabels(t *testing.T) {
	set := map[string]string{"app": "web", "tier": "front"}
	for text, want := range map[string]bool{
		"":                       true,
		"app=web":                true,
		"app==web,tier in (a,b)": false,
		"tier in (front, back)":  true,
		"tier notin (front)":     false,
		"other notin (x)":        true,
		"app":                    true,
		"!app":                   false,
		"!canary,app!=db":        true,
	} {
		s, err := selector.ParseLabels(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if s.Matches(set) != want || s.IsEverything() != (text == "") {
			t.Errorf("%q matches: %v", text, !want)
		}
		if again, err := selector.ParseLabels(s.String()); err != nil || again.Matches(set) != want {
			t.Errorf("%q does not survive String: %q", text, s)
		}
	}
	for _, text := range []string{"app=(", "a b", "=x", "app in", "-x=1"} {
		if _, err := selector.ParseLabels(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	var none *selector.Labels
	if !none.Matches(nil) || !none.IsEverything() || none.String() != "" || selector.Nothing().Matches(set) {
		t.Error("nil or Nothing is wrong")
	}
	if m := selector.FromMap(map[string]string{"app": "web"}); !m.Matches(set) || m.Matches(nil) {
		t.Error("FromMap is wrong")
	}
}

func TestLabelSelectorMessage(t *testing.T) {
	set := map[string]string{"app": "web"}
	requirement := func(key, op string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []*metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	for _, test := range []struct {
		selector *metav1.LabelSelector
		want     bool
	}{
		{nil, false},
		{&metav1.LabelSelector{}, true},
		{&metav1.LabelSelector{MatchLabels: set}, true},
		{&metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, false},
		{requirement("app", "In", "web", "db"), true},
		{requirement("app", "NotIn", "web"), false},
		{requirement("app", "Exists"), true},
		{requirement("app", "DoesNotExist"), false},
	} {
		s, err := selector.FromLabelSelector(test.selector)
		if err != nil || s.Matches(set) != test.want {
			t.Errorf("%v: matches %v, %v", test.selector, !test.want, err)
		}
	}
	for _, bad := range []*metav1.LabelSelector{
		requirement("app", "Like", "w"), requirement("app", "In"), requirement("app", "Exists", "x"),
		{MatchLabels: map[string]string{"not a key": "x"}},
	} {
		if _, err := selector.FromLabelSelector(bad); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

func TestFields(t *testing.T) {
	pod := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec:     &corev1.PodSpec{NodeName: proto.String("n1"), HostNetwork: proto.Bool(true)},
	}
	for text, want := range map[string]bool{
		"":                                      true,
		"metadata.name=web":                     true,
		"spec.nodeName=n1,status.phase!=Failed": true,
		"spec.nodeName!=n1":                     false,
		"spec.nodeName=":                        false,
		"status.podIP=":                         true,
		"spec.hostNetwork=true":                 true,
		"spec.hostPID=false":                    true,
		"status.phase=Running":                  false,
	} {
		f, err := selector.ParseFields(text)
		if err != nil || f.MatchesMessage(pod) != want {
			t.Errorf("%q matches %v, %v", text, !want, err)
			continue
		}
		if again, err := selector.ParseFields(f.String()); err != nil || again.MatchesMessage(pod) != want {
			t.Errorf("%q does not survive String: %q", text, f)
		}
	}
	for _, text := range []string{"a", "a in (b)", "=x"} {
		if _, err := selector.ParseFields(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	d := pod.ProtoReflect().Descriptor()
	for path, want := range map[string]bool{
		"metadata.name": true, "spec.nodeName": true, "spec": false, "spec.none": false, "spec.containers.name": false,
		"spec.node_name": false, "metadata.labels": false, "": false,
	} {
		if selector.ValidPath(d, path) != want {
			t.Errorf("ValidPath(%q) = %v", path, !want)
		}
	}
}
