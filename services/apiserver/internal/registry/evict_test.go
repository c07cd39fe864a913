package registry_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
)

// guarded is a gateway with pods under a budget of which its controller has said what status says.
type guarded struct {
	*env
	budgets *client.Resource[*policyv1.PodDisruptionBudget]
}

func newGuarded(t *testing.T, policy string, status *policyv1.PodDisruptionBudgetStatus) *guarded {
	t.Helper()
	g := &guarded{env: newEnv(t)}
	g.budgets = client.For[*policyv1.PodDisruptionBudget](g.Conn())
	g.budget(t, "a", policy, status)
	return g
}

func (g *guarded) budget(t *testing.T, name, policy string, status *policyv1.PodDisruptionBudgetStatus) {
	t.Helper()
	b := &policyv1.PodDisruptionBudget{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &policyv1.PodDisruptionBudgetSpec{
			MinAvailable: structpb.NewNumberValue(2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
	if policy != "" {
		b.Spec.UnhealthyPodEvictionPolicy = &policy
	}
	b = must[*policyv1.PodDisruptionBudget](t)(g.budgets.Create(t.Context(), b))
	b.Status = status
	must[*policyv1.PodDisruptionBudget](t)(g.budgets.UpdateStatus(t.Context(), b))
}

// pod makes a pod of the budget that is in the phase and ready or not.
func (g *guarded) pod(t *testing.T, name, phase, ready string) {
	t.Helper()
	p := must[*corev1.Pod](t)(g.pods.Create(t.Context(), pod(name, func(p *corev1.Pod) {
		p.Metadata.Labels = map[string]string{"app": "web"}
		p.Spec.NodeName = proto.String("n1")
	})))
	p.Status.Phase = phase
	p.Status.Conditions = []*corev1.PodCondition{{Type: "Ready", Status: ready, LastTransitionTime: timestamppb.New(time.Unix(1e9, 0))}}
	must[*corev1.Pod](t)(g.pods.UpdateStatus(t.Context(), p))
}

func (g *guarded) evict(t *testing.T, name string, options *metav1.DeleteOptions) error {
	t.Helper()
	_, err := g.raw.Evict(t.Context(), &corev1.EvictRequest{Namespace: "default", Name: name, Options: options})
	return apierr.FromStatus(err)
}

func counted(allowed, current, desired int32) *policyv1.PodDisruptionBudgetStatus {
	return &policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: current, DesiredHealthy: desired, ExpectedPods: 3,
		Conditions: []*metav1.Condition{{Type: "DisruptionAllowed", Status: "True", Reason: "SufficientPods", LastTransitionTime: timestamppb.New(time.Unix(1e9, 0))}},
	}
}

func TestEviction(t *testing.T) {
	g := newGuarded(t, "", counted(1, 3, 2))
	for _, name := range []string{"x", "y", "z"} {
		g.pod(t, name, "Running", "True")
	}
	if err := g.evict(t, "x", &metav1.DeleteOptions{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	if b := must[*policyv1.PodDisruptionBudget](t)(g.budgets.Get(t.Context(), "default", "a")); b.GetStatus().GetDisruptionsAllowed() != 1 {
		t.Fatalf("a dry run was charged: %v", b.GetStatus())
	}
	if err := g.evict(t, "x", nil); err != nil {
		t.Fatal(err)
	}
	x := must[*corev1.Pod](t)(g.pods.Get(t.Context(), "default", "x"))
	if c := x.GetStatus().GetConditions(); x.GetMetadata().GetDeletionTimestamp() == nil || len(c) != 2 || c[1].GetType() != "DisruptionTarget" || c[1].GetReason() != "EvictionByEvictionAPI" {
		t.Errorf("evicted pod %v", x)
	}
	b := must[*policyv1.PodDisruptionBudget](t)(g.budgets.Get(t.Context(), "default", "a"))
	if s := b.GetStatus(); s.GetDisruptionsAllowed() != 0 || s.GetDisruptedPods()["x"] == nil || s.GetConditions()[0].GetStatus() != "False" || s.GetConditions()[0].GetReason() != "InsufficientPods" {
		t.Errorf("budget after it: %v", s)
	}
	// One that goes already costs nothing.
	if err := g.evict(t, "x", nil); err != nil {
		t.Error(err)
	}
	wantError(t, g.evict(t, "y", nil), apierr.ReasonTooMany, "The disruption budget a needs 2 healthy pods and has 3 currently.")
	if y := must[*corev1.Pod](t)(g.pods.Get(t.Context(), "default", "y")); y.GetMetadata().GetDeletionTimestamp() != nil || len(y.GetStatus().GetConditions()) != 1 {
		t.Errorf("a pod that may not go has changed: %v", y)
	}
	// Deleting asks no budget.
	must[*corev1.Pod](t)(g.pods.Delete(t.Context(), "default", "y", nil))
	wantError(t, g.evict(t, "nosuch", nil), apierr.ReasonNotFound)
	wantError(t, g.evict(t, "z", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: proto.String("other")}}), apierr.ReasonConflict)
}

// TestEvictionOfPodsThatServeNobody has budgets that allow nothing.
func TestEvictionOfPodsThatServeNobody(t *testing.T) {
	for _, c := range []struct {
		name, policy, phase, ready string
		current, desired           int32
		goes                       bool
	}{
		{"ready", "", "Running", "True", 2, 2, false},
		{"ready, unready go", "AlwaysAllow", "Running", "True", 2, 2, false},
		{"unready, budget met", "", "Running", "False", 2, 2, true},
		{"unready, budget not met", "", "Running", "False", 1, 2, false},
		{"unready, budget not met, IfHealthyBudget", "IfHealthyBudget", "Running", "False", 1, 2, false},
		{"unready, budget not met, AlwaysAllow", "AlwaysAllow", "Running", "False", 1, 2, true},
		{"unready, nothing desired", "", "Running", "False", 0, 0, false},
		{"pending", "", "Pending", "False", 1, 2, true},
		{"succeeded", "", "Succeeded", "False", 1, 2, true},
		{"failed", "", "Failed", "False", 1, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, c.policy, counted(0, c.current, c.desired))
			g.pod(t, "x", c.phase, c.ready)
			err := g.evict(t, "x", nil)
			if c.goes != (err == nil) || err != nil && apierr.ReasonOf(err) != apierr.ReasonTooMany {
				t.Errorf("got %v, goes %v", err, c.goes)
			}
			b := must[*policyv1.PodDisruptionBudget](t)(g.budgets.Get(t.Context(), "default", "a"))
			if len(b.GetStatus().GetDisruptedPods()) > 0 {
				t.Errorf("it was charged: %v", b.GetStatus())
			}
		})
	}
}

func TestEvictionWaitsForTheController(t *testing.T) {
	g := newGuarded(t, "", counted(1, 3, 2))
	g.pod(t, "x", "Running", "True")
	b := must[*policyv1.PodDisruptionBudget](t)(g.budgets.Get(t.Context(), "default", "a"))
	b.Spec.MinAvailable = structpb.NewNumberValue(3)
	must[*policyv1.PodDisruptionBudget](t)(g.budgets.Update(t.Context(), b))
	err := g.evict(t, "x", nil)
	wantError(t, err, apierr.ReasonTooMany, "still being processed by the server")
}

func TestEvictionOfTwoBudgets(t *testing.T) {
	g := newGuarded(t, "", counted(1, 3, 2))
	g.budget(t, "b", "", counted(1, 3, 2))
	g.pod(t, "x", "Running", "True")
	if err := g.evict(t, "x", nil); apierr.ReasonOf(err) != apierr.ReasonInternal {
		t.Errorf("got %v, want Internal", err)
	}
}

// TestEvictionsAtOnce has twenty evictions compete for a budget of five.
func TestEvictionsAtOnce(t *testing.T) {
	const pods, allowed = 20, 5
	g := newGuarded(t, "", counted(allowed, pods, pods-allowed))
	for i := range pods {
		g.pod(t, fmt.Sprintf("p%d", i), "Running", "True")
	}
	var wg sync.WaitGroup
	errs := make([]error, pods)
	for i := range pods {
		wg.Go(func() {
			for {
				if errs[i] = g.evict(t, fmt.Sprintf("p%d", i), nil); errs[i] == nil || !isBusy(errs[i]) {
					return
				}
			}
		})
	}
	wg.Wait()
	gone := 0
	for _, err := range errs {
		switch {
		case err == nil:
			gone++
		case apierr.ReasonOf(err) != apierr.ReasonTooMany:
			t.Error(err)
		}
	}
	b := must[*policyv1.PodDisruptionBudget](t)(g.budgets.Get(t.Context(), "default", "a"))
	if gone != allowed || b.GetStatus().GetDisruptionsAllowed() != 0 || len(b.GetStatus().GetDisruptedPods()) != allowed {
		t.Errorf("%d pods went, want %d; %v", gone, allowed, b.GetStatus())
	}
}

// isBusy reports whether the budget was written by too many at once, and said nothing about the pod.
func isBusy(err error) bool {
	return apierr.ReasonOf(err) == apierr.ReasonTooMany && err.Error() == apierr.TooMany("the disruption budget is being written by many at once", 0).Error()
}
