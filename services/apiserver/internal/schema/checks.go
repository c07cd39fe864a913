package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/util/validation"

	"trireme.dev/client/selector"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// checks are the rules that cross fields, by message. They run after those of the options.
var checks = map[protoreflect.FullName]func(*path, proto.Message, *violations){
	"trireme.core.v1.PodSpec":   func(p *path, m proto.Message, out *violations) { checkPodSpec(p, m.(*corev1.PodSpec), out) },
	"trireme.core.v1.Container": func(p *path, m proto.Message, out *violations) { checkContainer(p, m.(*corev1.Container), out) },
	"trireme.core.v1.Volume":    func(p *path, m proto.Message, out *violations) { checkVolume(p, m.(*corev1.Volume), out) },
	"trireme.core.v1.EnvVar":    func(p *path, m proto.Message, out *violations) { checkEnv(p, m.(*corev1.EnvVar), out) },
	"trireme.core.v1.ResourceRequirements": func(p *path, m proto.Message, out *violations) {
		checkResources(p, m.(*corev1.ResourceRequirements), out)
	},
	"trireme.core.v1.Toleration": func(p *path, m proto.Message, out *violations) { checkToleration(p, m.(*corev1.Toleration), out) },
	"trireme.core.v1.NodeSelectorRequirement": func(p *path, m proto.Message, out *violations) {
		r := m.(*corev1.NodeSelectorRequirement)
		checkValues(p, r.GetOperator(), r.GetValues(), out)
	},
	"trireme.meta.v1.LabelSelectorRequirement": func(p *path, m proto.Message, out *violations) {
		r := m.(*metav1.LabelSelectorRequirement)
		checkValues(p, r.GetOperator(), r.GetValues(), out)
		for i, v := range r.GetValues() {
			words(validation.IsValidLabelValue)(p.field("values").item(i), v, out)
		}
	},
	"trireme.apps.v1.DeploymentSpec": func(p *path, m proto.Message, out *violations) {
		checkDeployment(p, m.(*appsv1.DeploymentSpec), out)
	},
	"trireme.apps.v1.ReplicaSetSpec": func(p *path, m proto.Message, out *violations) {
		s := m.(*appsv1.ReplicaSetSpec)
		checkTemplate(p, "replicaset", s.GetSelector(), s.GetTemplate(), out)
	},
	"trireme.scheduling.v1.PriorityClass": func(p *path, m proto.Message, out *violations) {
		checkPriorityClass(p, m.(*schedulingv1.PriorityClass), out)
	},
	"trireme.scheduling.v1.PodGroupSchedulingPolicy": func(p *path, m proto.Message, out *violations) {
		s := m.(*schedulingv1.PodGroupSchedulingPolicy)
		if (s.GetBasic() == nil) == (s.GetGang() == nil) {
			out.invalid(p, "(schedulingPolicy)", "must specify exactly one of: `basic`, `gang`")
		}
	},
}

// updateChecks are the rules that compare an object with what it replaces, by kind.
var updateChecks = map[protoreflect.FullName]func(next, old proto.Message, out *violations){
	"trireme.core.v1.ConfigMap": func(next, old proto.Message, out *violations) {
		n, o := next.(*corev1.ConfigMap), old.(*corev1.ConfigMap)
		if o.GetImmutable() {
			frozen(out, n.GetImmutable(), maps.Equal(n.GetData(), o.GetData()) && equalBytes(n.GetBinaryData(), o.GetBinaryData()))
		}
	},
	"trireme.core.v1.Secret": func(next, old proto.Message, out *violations) {
		n, o := next.(*corev1.Secret), old.(*corev1.Secret)
		if o.GetImmutable() {
			frozen(out, n.GetImmutable(), equalBytes(n.GetData(), o.GetData()))
		}
	},
	"trireme.core.v1.Node": func(next, old proto.Message, out *violations) {
		n, o := next.(*corev1.Node).GetSpec(), old.(*corev1.Node).GetSpec()
		p := (*path)(nil).field("spec")
		if o.GetPodCidr() != "" && n.GetPodCidr() != o.GetPodCidr() {
			out.forbidden(p.field("podCIDR"), `node updates may not change podCIDR except from "" to valid`)
		}
		if o.GetProviderId() != "" && n.GetProviderId() != o.GetProviderId() {
			out.forbidden(p.field("providerID"), `node updates may not change providerID except from "" to valid`)
		}
	},
}

func equalBytes(a, b map[string][]byte) bool {
	return maps.EqualFunc(a, b, func(x, y []byte) bool { return string(x) == string(y) })
}

func frozen(out *violations, still, sameData bool) {
	if !still {
		out.forbidden((*path)(nil).field("immutable"), "field is immutable when `immutable` is set")
	}
	if !sameData {
		out.forbidden((*path)(nil).field("data"), "field is immutable when `immutable` is set")
	}
}

func checkValues(p *path, operator string, values []string, out *violations) {
	p = p.field("values")
	switch operator {
	case "In", "NotIn":
		if len(values) == 0 {
			out.required(p, "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case "Exists", "DoesNotExist":
		if len(values) > 0 {
			out.forbidden(p, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	case "Gt", "Lt":
		if len(values) != 1 {
			out.required(p, "must be specified single value when `operator` is 'Lt' or 'Gt'")
		} else if _, err := strconv.ParseInt(values[0], 10, 64); err != nil {
			out.invalid(p.item(0), strconv.Quote(values[0]), "must be an integer when `operator` is 'Lt' or 'Gt'")
		}
	}
}

func checkToleration(p *path, t *corev1.Toleration, out *violations) {
	switch t.GetOperator() {
	case "Exists":
		if t.GetValue() != "" {
			out.invalid(p.field("operator"), strconv.Quote(t.GetOperator()), "value must be empty when `operator` is 'Exists'")
		}
	case "Lt", "Gt":
		if _, err := strconv.ParseInt(t.GetValue(), 10, 64); err != nil {
			out.invalid(p.field("value"), strconv.Quote(t.GetValue()), "must be an integer when `operator` is 'Lt' or 'Gt'")
		}
	default:
		words(validation.IsValidLabelValue)(p.field("value"), t.GetValue(), out)
		if t.GetKey() == "" {
			out.invalid(p.field("operator"), strconv.Quote(t.GetOperator()), "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
	}
	if t.TolerationSeconds != nil && t.GetEffect() != "NoExecute" {
		out.invalid(p.field("effect"), strconv.Quote(t.GetEffect()), "effect must be 'NoExecute' when `tolerationSeconds` is set")
	}
}

func checkDeployment(p *path, s *appsv1.DeploymentSpec, out *violations) {
	checkTemplate(p, "deployment", s.GetSelector(), s.GetTemplate(), out)
	strategy, here := s.GetStrategy(), p.field("strategy").field("rollingUpdate")
	switch {
	case strategy.GetType() == "Recreate" && strategy.GetRollingUpdate() != nil:
		out.forbidden(here, "may not be specified when strategy `type` is 'Recreate'")
	case strategy.GetType() == "RollingUpdate":
		if isZero(strategy.GetRollingUpdate().GetMaxUnavailable().AsInterface()) && isZero(strategy.GetRollingUpdate().GetMaxSurge().AsInterface()) {
			out.invalid(here.field("maxUnavailable"), "0", "may not be 0 when `maxSurge` is 0")
		}
	}
	if s.ProgressDeadlineSeconds != nil && s.GetProgressDeadlineSeconds() <= s.GetMinReadySeconds() {
		out.invalid(p.field("progressDeadlineSeconds"), strconv.Itoa(int(s.GetProgressDeadlineSeconds())), "must be greater than minReadySeconds")
	}
}

func isZero(v any) bool { return v == float64(0) || v == "0%" }

// checkTemplate holds selector and template together, and refuses what a controller could not keep running.
func checkTemplate(p *path, kind string, ls *metav1.LabelSelector, template *corev1.PodTemplateSpec, out *violations) {
	if ls == nil || template == nil {
		return // reported as required
	}
	if len(ls.GetMatchLabels())+len(ls.GetMatchExpressions()) == 0 {
		out.invalid(p.field("selector"), "{}", fmt.Sprintf("empty selector is invalid for %s", kind))
	} else if s, err := selector.FromLabelSelector(ls); err == nil && !s.Matches(template.GetMetadata().GetLabels()) {
		labels := template.GetMetadata().GetLabels()
		parts := make([]string, 0, len(labels))
		for _, k := range slices.Sorted(maps.Keys(labels)) {
			parts = append(parts, strconv.Quote(k)+":"+strconv.Quote(labels[k]))
		}
		out.invalid(p.field("template").field("metadata").field("labels"), "{"+strings.Join(parts, ",")+"}",
			"`selector` does not match template `labels`")
	}
	spec := p.field("template").field("spec")
	if template.GetSpec() == nil {
		out.required(spec, "")
		return
	}
	if policy := template.GetSpec().GetRestartPolicy(); policy != "Always" && policy != "" {
		out.unsupported(spec.field("restartPolicy"), strconv.Quote(policy), []string{"Always"})
	}
	if template.GetSpec().ActiveDeadlineSeconds != nil {
		out.forbidden(spec.field("activeDeadlineSeconds"), "activeDeadlineSeconds in a "+kind+" is not supported")
	}
}

const (
	// maxUserPriority is the highest priority that users may give.
	maxUserPriority = 1000000000
	// systemPrefix begins the names of the system's own priority classes.
	systemPrefix = "system-"
)

// SystemPriorities are the classes that exist from the start and may not differ.
var SystemPriorities = map[string]int32{
	"system-cluster-critical": 2 * maxUserPriority,
	"system-node-critical":    2*maxUserPriority + 1000,
}

func checkPriorityClass(p *path, pc *schedulingv1.PriorityClass, out *violations) {
	name := pc.GetMetadata().GetName()
	value, known := SystemPriorities[name]
	switch {
	case known && (pc.GetValue() != value || pc.GetGlobalDefault()):
		out.forbidden(p.field("metadata").field("name"), fmt.Sprintf(
			"%s is a system priority class: its value is %d and it is not the global default", name, value))
	case known:
	case strings.HasPrefix(name, systemPrefix):
		out.forbidden(p.field("metadata").field("name"),
			"priority class names with '"+systemPrefix+"' prefix are reserved for system use only")
	case pc.GetValue() > maxUserPriority:
		out.forbidden(p.field("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %d", maxUserPriority))
	}
}
