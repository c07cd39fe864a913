package registry

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/apierr"
	"trireme.dev/client/selector"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	"trireme.dev/services/apiserver/internal/storage"
)

const (
	// maxDisrupted bounds how many evictions a budget may be waiting for: its status would outgrow what can be stored.
	maxDisrupted = 2000
	// processedAfter is when to come back to a budget that its controller has yet to look at.
	processedAfter = 10 * time.Second
	evictTries     = 20
)

// Evict deletes a pod unless a disruption budget stands against it. Where one allows it, the eviction is written into the
// budget's status before the pod goes, so that of two evictions at once the budget never allows one too many.
func (r *Registry) Evict(ctx context.Context, req *corev1.EvictRequest) error {
	pods := r.Of("Pod")
	namespace, name := req.GetNamespace(), req.GetName()
	opts := req.GetOptions()
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	for try := 1; ; try++ {
		obj, entry, err := pods.load(ctx, namespace, name)
		if err != nil {
			return err
		}
		pod, _ := obj.(*corev1.Pod)
		if uid := opts.GetPreconditions().GetUid(); uid != "" || opts.GetPreconditions().GetResourceVersion() != "" {
			asked := &metav1.ObjectMeta{Uid: uid, ResourceVersion: opts.GetPreconditions().GetResourceVersion()}
			if err := pods.checkVersions(asked, pod.GetMetadata(), entry.Revision); err != nil {
				return err
			}
		}
		ask := proto.CloneOf(opts)
		if ask.Preconditions == nil {
			ask.Preconditions = &metav1.Preconditions{}
		}
		ask.Preconditions.Uid = proto.String(pod.GetMetadata().GetUid())
		if !ended(pod) {
			unready, err := r.charge(ctx, pod, opts.GetDryRun())
			if err != nil {
				return err
			}
			version, err := r.markDisrupted(ctx, pod, opts.GetDryRun())
			switch {
			case apierr.IsConflict(err) && unready && try < evictTries:
				continue
			case apierr.IsConflict(err):
				// It changed meanwhile. It is paid for, and goes without the condition.
			case err != nil:
				return err
			}
			ask.Preconditions.ResourceVersion = nil
			if unready {
				// It was let go as what it is now.
				ask.Preconditions.ResourceVersion = proto.String(version)
			}
		}
		_, err = pods.Delete(ctx, namespace, name, ask)
		if apierr.IsConflict(err) && ask.GetPreconditions().GetResourceVersion() != "" && try < evictTries {
			continue
		}
		return err
	}
}

// ended reports whether a pod serves nobody: budgets do not count it.
func ended(pod *corev1.Pod) bool {
	switch pod.GetStatus().GetPhase() {
	case "Succeeded", "Failed", "Pending":
		return true
	}
	return pod.GetMetadata().GetDeletionTimestamp() != nil
}

// charge takes the eviction of a pod from the budget that covers it, if any. It reports true where it took nothing
// because the pod is not ready.
func (r *Registry) charge(ctx context.Context, pod *corev1.Pod, dryRun bool) (bool, error) {
	budgets := r.Of("PodDisruptionBudget")
	for range evictTries {
		budget, err := r.budgetOf(ctx, pod)
		if err != nil || budget == nil {
			return false, err
		}
		status := budget.GetStatus()
		if !ready(pod) {
			met := status.GetDesiredHealthy() > 0 && status.GetCurrentHealthy() >= status.GetDesiredHealthy()
			if budget.GetSpec().GetUnhealthyPodEvictionPolicy() == "AlwaysAllow" || met {
				return true, nil
			}
		}
		if err := spend(budget, pod.GetMetadata().GetName(), time.Now()); err != nil {
			return false, err
		}
		_, err = budgets.Update(ctx, budget, Status, &metav1.WriteOptions{DryRun: dryRun})
		if !apierr.IsConflict(err) {
			return false, err
		}
	}
	return false, apierr.TooMany("the disruption budget is being written by many at once", time.Second)
}

// budgetOf returns the one budget that covers a pod, nil where there is none.
func (r *Registry) budgetOf(ctx context.Context, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	budgets := r.Of("PodDisruptionBudget")
	page, err := r.store.List(ctx, budgets.scope(pod.GetMetadata().GetNamespace()), storage.ListOptions{})
	if err != nil {
		return nil, budgets.storeError(err, pod.GetMetadata().GetNamespace(), "")
	}
	var found *policyv1.PodDisruptionBudget
	for _, entry := range page.Entries {
		obj, err := budgets.decode(entry)
		if err != nil {
			return nil, err
		}
		budget, _ := obj.(*policyv1.PodDisruptionBudget)
		labels, err := selector.FromLabelSelector(budget.GetSpec().GetSelector())
		if err != nil || !labels.Matches(pod.GetMetadata().GetLabels()) {
			continue
		}
		if found != nil {
			return nil, apierr.Internal(fmt.Errorf("pod %s/%s has more than one PodDisruptionBudget, which evictions do not support: %s, %s",
				pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), found.GetMetadata().GetName(), budget.GetMetadata().GetName()))
		}
		found = budget
	}
	return found, nil
}

// spend takes one disruption from a budget.
func spend(budget *policyv1.PodDisruptionBudget, pod string, now time.Time) error {
	name := budget.GetMetadata().GetName()
	if budget.Status == nil {
		budget.Status = &policyv1.PodDisruptionBudgetStatus{}
	}
	status := budget.Status
	switch {
	case status.GetObservedGeneration() < budget.GetMetadata().GetGeneration():
		return apierr.TooMany(fmt.Sprintf("Cannot evict pod as it would violate the pod's disruption budget. "+
			"The disruption budget %s is still being processed by the server.", name), processedAfter)
	case len(status.GetDisruptedPods()) >= maxDisrupted:
		return apierr.Forbidden("PodDisruptionBudget", name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case status.GetDisruptionsAllowed() <= 0:
		return apierr.TooMany(fmt.Sprintf("Cannot evict pod as it would violate the pod's disruption budget. "+
			"The disruption budget %s needs %d healthy pods and has %d currently.", name, status.GetDesiredHealthy(), status.GetCurrentHealthy()), 0)
	}
	status.DisruptionsAllowed--
	if status.DisruptionsAllowed == 0 {
		for _, c := range status.GetConditions() {
			if c.GetType() == "DisruptionAllowed" && c.GetStatus() != "False" {
				c.Status, c.Reason, c.LastTransitionTime = "False", "InsufficientPods", timestamppb.New(now.Truncate(time.Second))
				c.ObservedGeneration = status.GetObservedGeneration()
			}
		}
	}
	if status.DisruptedPods == nil {
		status.DisruptedPods = map[string]*timestamppb.Timestamp{}
	}
	// If the pod does not go after all, its entry is dropped in a while.
	status.DisruptedPods[pod] = timestamppb.New(now.Truncate(time.Second))
	return nil
}

// markDisrupted tells whoever watches the pod why it goes, and returns the version that it has then. It fails with
// Conflict where the pod has changed: the agent's news of it are not to be lost.
func (r *Registry) markDisrupted(ctx context.Context, pod *corev1.Pod, dryRun bool) (string, error) {
	next := proto.CloneOf(pod)
	if next.Status == nil {
		next.Status = &corev1.PodStatus{}
	}
	next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(c *corev1.PodCondition) bool { return c.GetType() == "DisruptionTarget" })
	next.Status.Conditions = append(next.Status.Conditions, &corev1.PodCondition{
		Type: "DisruptionTarget", Status: "True", Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		LastTransitionTime: timestamppb.New(time.Now().Truncate(time.Second)),
	})
	result, err := r.Of("Pod").Update(ctx, next, Status, &metav1.WriteOptions{DryRun: dryRun})
	return strconv.FormatInt(result.Revision, 10), err
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			return c.GetStatus() == "True"
		}
	}
	return false
}
