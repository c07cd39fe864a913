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
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// checks are the rules that cross fields and that CEL cannot say, or only badly, by message. They run last.
var checks = map[protoreflect.FullName]func(*path, proto.Message, *violations){
	"trireme.core.v1.PodSpec":   func(p *path, m proto.Message, out *violations) { checkPodSpec(p, m.(*corev1.PodSpec), out) },
	"trireme.core.v1.Container": func(p *path, m proto.Message, out *violations) { checkContainer(p, m.(*corev1.Container), out) },
	"trireme.core.v1.Volume":    func(p *path, m proto.Message, out *violations) { checkVolume(p, m.(*corev1.Volume), out) },
	"trireme.core.v1.ResourceRequirements": func(p *path, m proto.Message, out *violations) {
		checkResources(p, m.(*corev1.ResourceRequirements), out)
	},
	"trireme.core.v1.Toleration": func(p *path, m proto.Message, out *violations) { checkToleration(p, m.(*corev1.Toleration), out) },
	"trireme.meta.v1.LabelSelectorRequirement": func(p *path, m proto.Message, out *violations) {
		r := m.(*metav1.LabelSelectorRequirement)
		for i, v := range r.GetValues() {
			words(validation.IsValidLabelValue)(p.field("values").item(i), v, out)
		}
	},
	"trireme.apps.v1.DeploymentSpec": func(p *path, m proto.Message, out *violations) {
		s := m.(*appsv1.DeploymentSpec)
		checkTemplate(p, "deployment", s.GetSelector(), s.GetTemplate(), out)
	},
	"trireme.apps.v1.ReplicaSetSpec": func(p *path, m proto.Message, out *violations) {
		s := m.(*appsv1.ReplicaSetSpec)
		checkTemplate(p, "replicaset", s.GetSelector(), s.GetTemplate(), out)
	},
	"trireme.apps.v1.RollingUpdateDeployment": func(p *path, m proto.Message, out *violations) {
		checkShare(p, m.(*appsv1.RollingUpdateDeployment), out)
	},
	"trireme.coordination.v1.LeaseSpec": func(p *path, m proto.Message, out *violations) {
		checkLease(p, m.(*coordinationv1.LeaseSpec), out)
	},
	"trireme.core.v1.AppArmorProfile": func(p *path, m proto.Message, out *violations) {
		a := m.(*corev1.AppArmorProfile)
		checkProfile(p, "AppArmor", a.GetType(), a.LocalhostProfile, out)
	},
	"trireme.core.v1.ConfigMap": func(p *path, m proto.Message, out *violations) { checkConfigMap(p, m.(*corev1.ConfigMap), out) },
	"trireme.core.v1.DownwardAPIVolumeFile": func(p *path, m proto.Message, out *violations) {
		checkDownwardFile(p, m.(*corev1.DownwardAPIVolumeFile), out)
	},
	"trireme.core.v1.EnvFromSource": func(p *path, m proto.Message, out *violations) { checkEnvFrom(p, m.(*corev1.EnvFromSource), out) },
	"trireme.core.v1.EnvVarSource": func(p *path, m proto.Message, out *violations) {
		e := m.(*corev1.EnvVarSource)
		checkFieldPath(p.field("fieldRef"), e.GetFieldRef(), envFields, out)
		checkResourceField(p.field("resourceFieldRef"), e.GetResourceFieldRef(), out)
	},
	"trireme.core.v1.Event": func(p *path, m proto.Message, out *violations) { checkEvent(p, m.(*corev1.Event), out) },
	"trireme.core.v1.KeyToPath": func(p *path, m proto.Message, out *violations) {
		checkLocalPath(p.field("path"), m.(*corev1.KeyToPath).GetPath(), out)
	},
	"trireme.core.v1.LifecycleHandler": func(p *path, m proto.Message, out *violations) {
		h := m.(*corev1.LifecycleHandler)
		checkHandler(p, h, h.GetExec(), h.GetHttpGet(), h.GetTcpSocket(), out)
	},
	"trireme.core.v1.NodeSelectorTerm": func(p *path, m proto.Message, out *violations) {
		checkNodeSelectorTerm(p, m.(*corev1.NodeSelectorTerm), out)
	},
	"trireme.core.v1.NodeStatus": func(p *path, m proto.Message, out *violations) {
		checkAmounts(p.field("capacity"), m.(*corev1.NodeStatus).GetCapacity(), out)
		checkAmounts(p.field("allocatable"), m.(*corev1.NodeStatus).GetAllocatable(), out)
	},
	"trireme.core.v1.PodAffinityTerm": func(p *path, m proto.Message, out *violations) {
		checkAffinityTerm(p, m.(*corev1.PodAffinityTerm), out)
	},
	"trireme.core.v1.PodResourceClaim": func(p *path, m proto.Message, out *violations) {
		c := m.(*corev1.PodResourceClaim)
		checkClaimSource(p, c.ResourceClaimName, c.ResourceClaimTemplateName, out)
	},
	"trireme.core.v1.PodTemplateSpec": func(p *path, m proto.Message, out *violations) {
		checkPodTemplate(p, m.(*corev1.PodTemplateSpec), out)
	},
	"trireme.core.v1.Probe": func(p *path, m proto.Message, out *violations) {
		h := m.(*corev1.Probe)
		checkHandler(p, h, h.GetExec(), h.GetHttpGet(), h.GetTcpSocket(), out)
	},
	"trireme.core.v1.SeccompProfile": func(p *path, m proto.Message, out *violations) {
		s := m.(*corev1.SeccompProfile)
		checkProfile(p, "seccomp", s.GetType(), s.LocalhostProfile, out)
	},
	"trireme.core.v1.Secret": func(p *path, m proto.Message, out *violations) { checkSecret(p, m.(*corev1.Secret), out) },
	"trireme.core.v1.SecurityContext": func(p *path, m proto.Message, out *violations) {
		checkSecurityContext(p, m.(*corev1.SecurityContext), out)
	},
	"trireme.core.v1.ServiceSpec": func(p *path, m proto.Message, out *violations) { checkService(p, m.(*corev1.ServiceSpec), out) },
	"trireme.core.v1.Taint":       func(p *path, m proto.Message, out *violations) { checkTaint(p, m.(*corev1.Taint), out) },
	"trireme.core.v1.TopologySpreadConstraint": func(p *path, m proto.Message, out *violations) {
		checkSpread(p, m.(*corev1.TopologySpreadConstraint), out)
	},
	"trireme.scheduling.v1.PodGroupResourceClaim": func(p *path, m proto.Message, out *violations) {
		c := m.(*schedulingv1.PodGroupResourceClaim)
		checkClaimSource(p, c.ResourceClaimName, c.ResourceClaimTemplateName, out)
	},
	"trireme.scheduling.v1.PriorityClass": func(p *path, m proto.Message, out *violations) {
		checkPriorityClass(p, m.(*schedulingv1.PriorityClass), out)
	},
}

func checkToleration(p *path, t *corev1.Toleration, out *violations) {
	switch t.GetOperator() {
	case "Exists":
	case "Lt", "Gt":
		if _, err := strconv.ParseInt(t.GetValue(), 10, 64); err != nil {
			out.invalid(p.field("value"), strconv.Quote(t.GetValue()), "must be an integer when `operator` is 'Lt' or 'Gt'")
		}
	case "", "Equal":
		words(validation.IsValidLabelValue)(p.field("value"), t.GetValue(), out)
		if t.GetKey() == "" {
			out.invalid(p.field("operator"), strconv.Quote(t.GetOperator()), "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
	}
}

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
	if policy := template.GetSpec().GetRestartPolicy(); policy == "OnFailure" || policy == "Never" {
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
