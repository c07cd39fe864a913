package admission

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/apiserver/internal/registry"
)

// priority turns the class of a pod or pod group into its number.
func priority(ctx context.Context, reg *registry.Registry, w registry.Write) error {
	switch obj := w.Object.(type) {
	case *corev1.Pod:
		if obj.GetSpec() == nil {
			return nil
		}
		s := obj.Spec
		value, policy, err := resolve(ctx, reg, w, &s.PriorityClassName)
		if err != nil {
			return err
		}
		if s.Priority != nil && s.GetPriority() != value {
			return forbidden(w, fmt.Sprintf("the integer value of priority (%d) must not be provided in pod spec; "+
				"priority admission controller computed %d from the given PriorityClass name", s.GetPriority(), value))
		}
		s.Priority = proto.Int32(value)
		if s.PreemptionPolicy == nil {
			s.PreemptionPolicy = proto.String(policy)
		}
	case *schedulingv1.PodGroup:
		if obj.GetSpec() == nil {
			return nil
		}
		s := obj.Spec
		value, policy, err := resolve(ctx, reg, w, &s.PriorityClassName)
		if err != nil {
			return err
		}
		s.Priority = proto.Int32(value)
		if s.PreemptionPolicy == nil {
			s.PreemptionPolicy = proto.String(policy)
		}
	}
	return nil
}

// resolve returns value and preemption policy of the class named; where none is named, of the global default, whose
// name is filled in.
func resolve(ctx context.Context, reg *registry.Registry, w registry.Write, name **string) (int32, string, error) {
	if *name != nil && **name != "" {
		obj, err := reg.Find(ctx, "PriorityClass", **name)
		if apierr.IsNotFound(err) {
			return 0, "", forbidden(w, fmt.Sprintf("no PriorityClass with name %s was found", **name))
		}
		if err != nil {
			return 0, "", err
		}
		pc, _ := obj.(*schedulingv1.PriorityClass)
		return pc.GetValue(), policyOf(pc), nil
	}
	all, err := reg.FindAll(ctx, "PriorityClass")
	if err != nil {
		return 0, "", err
	}
	// Should several claim to be the default, the lowest is taken, as Kubernetes does.
	var chosen *schedulingv1.PriorityClass
	for _, obj := range all {
		pc, _ := obj.(*schedulingv1.PriorityClass)
		if pc.GetGlobalDefault() && (chosen == nil || pc.GetValue() < chosen.GetValue()) {
			chosen = pc
		}
	}
	if chosen == nil {
		return 0, policyOf(nil), nil
	}
	*name = proto.String(chosen.GetMetadata().GetName())
	return chosen.GetValue(), policyOf(chosen), nil
}

func policyOf(pc *schedulingv1.PriorityClass) string {
	if p := pc.GetPreemptionPolicy(); p != "" {
		return p
	}
	return "PreemptLowerPriority"
}
