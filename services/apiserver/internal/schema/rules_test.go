package schema

import (
	"strings"
	"testing"

	"cel.dev/cel-go/cel"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// A rule that could never be asked, or could cost too much, keeps the gateway from starting.
func TestRulesAreCheckedAtStart(t *testing.T) {
	d := (&corev1.PodSpec{}).ProtoReflect().Descriptor()
	self := cel.ObjectType(string(d.FullName()))
	env, err := cel.NewEnv(cel.Types(&corev1.PodSpec{}), cel.JSONFieldNames(true), cel.Variable(selfName, self), cel.Variable(oldSelfName, self))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rule *metav1.Rule
		want string
	}{
		"good":         {&metav1.Rule{Rule: "self.hostNetwork", Message: "m", FieldPath: "securityContext.runAsUser"}, ""},
		"no such":      {&metav1.Rule{Rule: "self.hostNetwrk", Message: "m"}, "undefined field"},
		"proto's name": {&metav1.Rule{Rule: "self.host_network", Message: "m"}, "undefined field"},
		"no boolean":   {&metav1.Rule{Rule: "self.nodeName", Message: "m"}, "not true or false"},
		"no message":   {&metav1.Rule{Rule: "self.hostNetwork"}, "no message"},
		"no when":      {&metav1.Rule{Rule: "self.hostNetwork", Message: "m", When: []string{"x"}}, "when"},
		"no path":      {&metav1.Rule{Rule: "self.hostNetwork", Message: "m", FieldPath: "securityContext.x"}, "field_path"},
		"all pairs": {&metav1.Rule{
			Rule: "self.containers.all(a, self.containers.all(b, a.name != b.name || a.image == b.image))", Message: "m",
		}, "may cost"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compileRule(env, d, c.rule)
			if got := ""; err == nil && c.want != got || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
		})
	}
}
