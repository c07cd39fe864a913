package registry

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/schema"
)

var podStrategy = strategy{
	prepareCreate: func(obj Object) {
		pod, _ := obj.(*corev1.Pod)
		joinGang(pod)
		pod.Status = &corev1.PodStatus{Phase: "Pending"}
		// The class follows from requests and limits, and requests default to limits: these defaults must be in already.
		schema.DefaultRequests(pod.GetSpec())
		pod.Status.QosClass = QOSClass(pod.GetSpec())
	},
	prepareUpdate: func(next, old Object) {
		// Only Bind puts a pod on a node.
		n, _ := next.(*corev1.Pod)
		o, _ := old.(*corev1.Pod)
		if n.GetSpec() != nil && n.GetSpec().NodeName == nil {
			n.Spec.NodeName = o.GetSpec().NodeName
		}
	},
	validateUpdate: validatePodUpdate,
	grace: func(obj Object, opts *metav1.DeleteOptions) int64 {
		pod, _ := obj.(*corev1.Pod)
		return podGrace(pod, opts)
	},
}

// gangLabel names the group of a pod as Kubernetes' scheduler-plugins have it.
const gangLabel = "scheduling.x-k8s.io/pod-group"

// joinGang makes a pod a member of the group that its label names, unless it says itself which it joins: manifests written
// for scheduler-plugins mean the same here.
func joinGang(pod *corev1.Pod) {
	name := pod.GetMetadata().GetLabels()[gangLabel]
	if name == "" || pod.GetSpec() == nil || pod.GetSpec().GetSchedulingGroup() != nil {
		return
	}
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(name)}
}

// podGrace is how long a pod has to end: nothing where no agent runs it or it has ended.
func podGrace(pod *corev1.Pod, opts *metav1.DeleteOptions) int64 {
	phase := pod.GetStatus().GetPhase()
	if pod.GetSpec().GetNodeName() == "" || phase == "Succeeded" || phase == "Failed" {
		return 0
	}
	meta := pod.GetMetadata()
	grace := int64(30)
	switch {
	case opts != nil && opts.GracePeriodSeconds != nil:
		grace = opts.GetGracePeriodSeconds()
	case meta.GetDeletionTimestamp() != nil:
		// Asking again without a grace changes nothing.
		return meta.GetDeletionGracePeriodSeconds()
	case pod.GetSpec() != nil && pod.GetSpec().TerminationGracePeriodSeconds != nil:
		grace = pod.GetSpec().GetTerminationGracePeriodSeconds()
	}
	if grace < 0 {
		grace = 1
	}
	return grace
}

// validatePodUpdate refuses every change of spec but those that Kubernetes allows: images, more tolerations, a shorter
// active deadline, fewer scheduling gates, and a termination grace of 1 where it was negative.
func validatePodUpdate(nextObj, oldObj Object) []apierr.Violation {
	next, _ := nextObj.(*corev1.Pod)
	old, _ := oldObj.(*corev1.Pod)
	n, o := next.GetSpec(), old.GetSpec()
	var out []apierr.Violation
	if len(n.GetContainers()) != len(o.GetContainers()) {
		return []apierr.Violation{{Field: "spec.containers", Message: "Forbidden: pod updates may not add or remove containers"}}
	}
	if len(n.GetInitContainers()) != len(o.GetInitContainers()) {
		return []apierr.Violation{{Field: "spec.initContainers", Message: "Forbidden: pod updates may not add or remove containers"}}
	}
	out = append(out, activeDeadline(n, o)...)
	for _, t := range o.GetTolerations() {
		if !slices.ContainsFunc(n.GetTolerations(), func(u *corev1.Toleration) bool { return sameToleration(t, u) }) {
			out = append(out, apierr.Violation{
				Field: "spec.tolerations", Message: "Forbidden: existing toleration can not be modified except its tolerationSeconds",
			})
			break
		}
	}
	for _, g := range n.GetSchedulingGates() {
		if !slices.ContainsFunc(o.GetSchedulingGates(), func(h *corev1.PodSchedulingGate) bool { return g.GetName() == h.GetName() }) {
			out = append(out, apierr.Violation{
				Field:   "spec.schedulingGates",
				Message: fmt.Sprintf("Forbidden: only deletion is allowed, but found new scheduling gate '%s'", g.GetName()),
			})
		}
	}

	// Whatever else differs is refused, by the name of the first field: copy what may change and compare the rest.
	rest, _ := proto.Clone(n).(*corev1.PodSpec)
	for i, c := range o.GetContainers() {
		rest.Containers[i].Image = c.GetImage()
	}
	for i, c := range o.GetInitContainers() {
		rest.InitContainers[i].Image = c.GetImage()
	}
	rest.Tolerations = o.GetTolerations()
	rest.SchedulingGates = o.GetSchedulingGates()
	rest.ActiveDeadlineSeconds = o.ActiveDeadlineSeconds
	if o.GetTerminationGracePeriodSeconds() < 0 && n.GetTerminationGracePeriodSeconds() == 1 {
		rest.TerminationGracePeriodSeconds = o.TerminationGracePeriodSeconds
	}
	// A pod whose gates are still up may be narrowed in where it may run.
	if len(o.GetSchedulingGates()) > 0 {
		rest.NodeSelector, rest.Affinity = o.GetNodeSelector(), o.GetAffinity()
	}
	for _, field := range schema.ChangedFields(rest, o) {
		out = append(out, apierr.Violation{
			Field: "spec." + field,
			Message: "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, " +
				"`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing " +
				"tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
		})
	}
	return out
}

func activeDeadline(n, o *corev1.PodSpec) []apierr.Violation {
	const field = "spec.activeDeadlineSeconds"
	switch {
	case o.ActiveDeadlineSeconds == nil:
		return nil
	case n.ActiveDeadlineSeconds == nil:
		return []apierr.Violation{{Field: field, Message: "Invalid value: null: must not update from a positive integer to nil value"}}
	case n.GetActiveDeadlineSeconds() > o.GetActiveDeadlineSeconds():
		return []apierr.Violation{{
			Field:   field,
			Message: fmt.Sprintf("Invalid value: %d: must be less than or equal to previous value", n.GetActiveDeadlineSeconds()),
		}}
	}
	return nil
}

func sameToleration(a, b *corev1.Toleration) bool {
	return a.GetKey() == b.GetKey() && a.GetOperator() == b.GetOperator() && a.GetValue() == b.GetValue() && a.GetEffect() == b.GetEffect()
}

// QOSClass follows Kubernetes: Guaranteed where each container has limits of cpu and memory equal to its requests,
// BestEffort where none asks for either, Burstable otherwise.
func QOSClass(spec *corev1.PodSpec) string {
	guaranteed, bestEffort := true, true
	for _, c := range slices.Concat(spec.GetInitContainers(), spec.GetContainers()) {
		requests, limits := c.GetResources().GetRequests(), c.GetResources().GetLimits()
		for _, name := range []string{"cpu", "memory"} {
			request, asked := schema.QuantityOf(requests[name])
			limit, limited := schema.QuantityOf(limits[name])
			asked, limited = asked && request.Sign() > 0, limited && limit.Sign() > 0
			if asked || limited {
				bestEffort = false
			}
			if !limited || (requests[name] != "" && request.Cmp(limit) != 0) {
				guaranteed = false
			}
		}
	}
	switch {
	case bestEffort:
		return "BestEffort"
	case guaranteed:
		return "Guaranteed"
	}
	return "Burstable"
}
