package registry

import (
	"slices"

	"trireme.dev/client/apierr"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// validateWorkloadUpdate refuses templates that come or go. What changes within one is for the fields' options to refuse.
func validateWorkloadUpdate(nextObj, oldObj Object) []apierr.Violation {
	next, _ := nextObj.(*schedulingv1.Workload)
	old, _ := oldObj.(*schedulingv1.Workload)
	names := func(w *schedulingv1.Workload) []string {
		var out []string
		for _, t := range w.GetSpec().GetPodGroupTemplates() {
			out = append(out, t.GetName())
		}
		slices.Sort(out)
		return out
	}
	if slices.Equal(names(next), names(old)) {
		return nil
	}
	return []apierr.Violation{{Field: "spec.podGroupTemplates", Message: "Forbidden: templates may not be added or removed"}}
}
