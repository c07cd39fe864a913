package conversion

import (
	"encoding/json"
	"strconv"

	"google.golang.org/protobuf/proto"

	coschedulingv1alpha1 "trireme.dev/proto/gen/trireme/coscheduling/v1alpha1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	schedulingv1alpha2 "trireme.dev/proto/gen/trireme/scheduling/v1alpha2"
)

// Annotations of other versions that hold what only the stored one has fields for, as its JSON.
const (
	restOfSpec   = "scheduling.trireme.dev/spec"
	restOfStatus = "scheduling.trireme.dev/status"
)

// Annotations of the stored version that hold what only scheduling.x-k8s.io/v1alpha1 has fields for.
const (
	gangMinResources = "scheduling.x-k8s.io/min-resources"
	gangTimeout      = "scheduling.x-k8s.io/schedule-timeout-seconds"
	gangStatus       = "scheduling.x-k8s.io/status"
)

// The ways of v1alpha2 to say how pods may be evicted.
const (
	disruptPods  = "Pod"
	disruptGroup = "PodGroup"
)

func podGroupAlpha2ToStored(in *schedulingv1alpha2.PodGroup) *schedulingv1.PodGroup {
	out := &schedulingv1.PodGroup{Metadata: in.GetMetadata()}
	rest := take(out.GetMetadata(), restOfSpec)
	if spec := in.GetSpec(); spec != nil {
		out.Spec = &schedulingv1.PodGroupSpec{}
		if read(rest, out.Spec) {
			// Only what v1alpha2 has no field for.
			out.Spec = &schedulingv1.PodGroupSpec{
				ParentCompositePodGroupName: out.Spec.ParentCompositePodGroupName, PreemptionPolicy: out.Spec.PreemptionPolicy,
			}
		}
		if ref := spec.GetPodGroupTemplateRef().GetWorkload(); ref != nil {
			out.Spec.WorkloadRef = &schedulingv1.WorkloadReference{
				WorkloadName: ref.GetWorkloadName(), TemplateName: ref.GetPodGroupTemplateName(),
			}
		}
		if spec.SchedulingPolicy != nil {
			out.Spec.SchedulingPolicy = recode(spec.SchedulingPolicy, &schedulingv1.PodGroupSchedulingPolicy{})
		}
		if spec.SchedulingConstraints != nil {
			out.Spec.SchedulingConstraints = recode(spec.SchedulingConstraints, &schedulingv1.PodGroupSchedulingConstraints{})
		}
		for _, claim := range spec.GetResourceClaims() {
			out.Spec.ResourceClaims = append(out.Spec.ResourceClaims, recode(claim, &schedulingv1.PodGroupResourceClaim{}))
		}
		switch {
		case spec.DisruptionMode == nil:
		case spec.GetDisruptionMode() == disruptGroup:
			out.Spec.DisruptionMode = &schedulingv1.DisruptionMode{All: &schedulingv1.AllDisruptionMode{}}
		default:
			out.Spec.DisruptionMode = &schedulingv1.DisruptionMode{Single: &schedulingv1.SingleDisruptionMode{}}
		}
		out.Spec.PriorityClassName, out.Spec.Priority = spec.PriorityClassName, spec.Priority
	}
	if in.Status != nil {
		out.Status = recode(in.Status, &schedulingv1.PodGroupStatus{})
	}
	return out
}

func podGroupAlpha2FromStored(in *schedulingv1.PodGroup) *schedulingv1alpha2.PodGroup {
	out := &schedulingv1alpha2.PodGroup{Metadata: in.GetMetadata()}
	take(out.GetMetadata(), restOfSpec)
	if spec := in.GetSpec(); spec != nil {
		out.Spec = &schedulingv1alpha2.PodGroupSpec{}
		if ref := spec.GetWorkloadRef(); ref != nil {
			out.Spec.PodGroupTemplateRef = &schedulingv1alpha2.PodGroupTemplateReference{
				Workload: &schedulingv1alpha2.WorkloadPodGroupTemplateReference{
					WorkloadName: ref.GetWorkloadName(), PodGroupTemplateName: ref.GetTemplateName(),
				},
			}
		}
		if spec.SchedulingPolicy != nil {
			out.Spec.SchedulingPolicy = recode(spec.SchedulingPolicy, &schedulingv1alpha2.PodGroupSchedulingPolicy{})
		}
		if spec.SchedulingConstraints != nil {
			out.Spec.SchedulingConstraints = recode(spec.SchedulingConstraints, &schedulingv1alpha2.PodGroupSchedulingConstraints{})
		}
		for _, claim := range spec.GetResourceClaims() {
			out.Spec.ResourceClaims = append(out.Spec.ResourceClaims, recode(claim, &schedulingv1alpha2.PodGroupResourceClaim{}))
		}
		switch {
		case spec.GetDisruptionMode().GetAll() != nil:
			out.Spec.DisruptionMode = proto.String(disruptGroup)
		case spec.DisruptionMode != nil:
			out.Spec.DisruptionMode = proto.String(disruptPods)
		}
		out.Spec.PriorityClassName, out.Spec.Priority = spec.PriorityClassName, spec.Priority
		rest := &schedulingv1.PodGroupSpec{
			ParentCompositePodGroupName: spec.ParentCompositePodGroupName, PreemptionPolicy: spec.PreemptionPolicy,
		}
		if !empty(rest) {
			put(&out.Metadata, restOfSpec, text(rest))
		}
	}
	if in.Status != nil {
		out.Status = recode(in.Status, &schedulingv1alpha2.PodGroupStatus{})
	}
	return out
}

// gangToStored makes a gang of minMember pods. The rest of a stored spec, and the status that the scheduler writes, stand
// in annotations.
func gangToStored(in *coschedulingv1alpha1.PodGroup) *schedulingv1.PodGroup {
	out := &schedulingv1.PodGroup{Metadata: in.GetMetadata()}
	rest, status := take(out.GetMetadata(), restOfSpec), take(out.GetMetadata(), restOfStatus)
	if spec := in.GetSpec(); spec != nil {
		out.Spec = &schedulingv1.PodGroupSpec{}
		if !read(rest, out.Spec) {
			proto.Reset(out.Spec)
		}
		if spec.MinMember != nil {
			out.Spec.SchedulingPolicy = &schedulingv1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1.GangSchedulingPolicy{MinCount: spec.GetMinMember()},
			}
		}
		if len(spec.GetMinResources()) > 0 {
			resources, _ := json.Marshal(spec.GetMinResources()) // strings alone
			put(&out.Metadata, gangMinResources, string(resources))
		}
		if spec.ScheduleTimeoutSeconds != nil {
			put(&out.Metadata, gangTimeout, strconv.Itoa(int(spec.GetScheduleTimeoutSeconds())))
		}
	}
	if status != "" {
		if out.Status = (&schedulingv1.PodGroupStatus{}); !read(status, out.Status) {
			out.Status = nil
		}
	}
	// A phase that follows from the scheduler's conditions is not worth keeping.
	if in.Status != nil && !proto.Equal(in.Status, gangPhase(out.GetStatus())) {
		put(&out.Metadata, gangStatus, text(in.Status))
	}
	return out
}

func gangFromStored(in *schedulingv1.PodGroup) *coschedulingv1alpha1.PodGroup {
	out := &coschedulingv1alpha1.PodGroup{Metadata: in.GetMetadata()}
	take(out.GetMetadata(), restOfSpec)
	take(out.GetMetadata(), restOfStatus)
	resources, timeout := take(out.GetMetadata(), gangMinResources), take(out.GetMetadata(), gangTimeout)
	status := take(out.GetMetadata(), gangStatus)
	if spec := in.GetSpec(); spec != nil {
		out.Spec = &coschedulingv1alpha1.PodGroupSpec{}
		if policy := spec.GetSchedulingPolicy(); policy.GetGang() != nil && policy.GetBasic() == nil {
			out.Spec.MinMember = proto.Int32(policy.GetGang().GetMinCount())
			spec.SchedulingPolicy = nil
		}
		if !empty(spec) {
			put(&out.Metadata, restOfSpec, text(spec))
		}
		if resources != "" && json.Unmarshal([]byte(resources), &out.Spec.MinResources) != nil {
			out.Spec.MinResources = nil
		}
		if seconds, err := strconv.ParseInt(timeout, 10, 32); err == nil {
			out.Spec.ScheduleTimeoutSeconds = proto.Int32(int32(seconds))
		}
	}
	if in.Status != nil {
		put(&out.Metadata, restOfStatus, text(in.Status))
	}
	out.Status = &coschedulingv1alpha1.PodGroupStatus{}
	if !read(status, out.Status) {
		out.Status = gangPhase(in.GetStatus())
	}
	return out
}

// gangPhase is what the scheduler's conditions amount to; nil where they say nothing.
func gangPhase(status *schedulingv1.PodGroupStatus) *coschedulingv1alpha1.PodGroupStatus {
	for _, c := range status.GetConditions() {
		if c.GetType() != "PodGroupInitiallyScheduled" {
			continue
		}
		phase := "Pending"
		if c.GetStatus() == "True" {
			phase = "Scheduled"
		}
		return &coschedulingv1alpha1.PodGroupStatus{Phase: proto.String(phase)}
	}
	return nil
}
