package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// mirrorAnnotation marks the image of a pod that the node has from elsewhere: to evict it has no effect.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// drainRules are what the user allows a drain to do.
type drainRules struct {
	force, ignoreDaemonSets, deleteEmptyDir bool
	// skipDeletedFor leaves out pods that have been going for longer; zero for none.
	skipDeletedFor time.Duration
}

// drainPlan is what a drain does with the pods of a node.
type drainPlan struct {
	evict []*corev1.Pod
	// refused are reasons why nothing may be done at all, warnings what is done though somebody may be surprised. Both name pods.
	refused, warnings []string
}

// planDrain decides. It is pure.
func planDrain(pods []*corev1.Pod, rules drainRules, now time.Time) drainPlan {
	var plan drainPlan
	groups := []struct {
		is           func(*corev1.Pod) bool
		allowed      bool
		skip         bool
		cannot, will string
		pods         []string
	}{
		{
			is: ownedByDaemonSet, allowed: rules.ignoreDaemonSets, skip: true,
			cannot: "they belong to DaemonSets, which would bring them back (--ignore-daemonsets leaves them where they are)",
			will:   "left where they are, since they belong to DaemonSets",
		},
		{
			is: hasEmptyDir, allowed: rules.deleteEmptyDir,
			cannot: "they have emptyDir volumes, whose data is lost (--delete-emptydir-data allows it)",
			will:   "their emptyDir volumes are lost",
		},
		{
			is: hasNoController, allowed: rules.force,
			cannot: "no controller makes them anew elsewhere (--force deletes them for good)",
			will:   "deleted for good, since no controller makes them anew",
		},
	}
	for _, p := range pods {
		if p.GetMetadata().GetAnnotations()[mirrorAnnotation] != "" {
			continue
		}
		if t := p.GetMetadata().GetDeletionTimestamp(); t != nil && rules.skipDeletedFor > 0 && now.Sub(t.AsTime()) > rules.skipDeletedFor {
			continue
		}
		key, skip := podKey(p), false
		for i := range groups {
			// What has ended loses nothing.
			if g := &groups[i]; !ended(p) && g.is(p) {
				g.pods = append(g.pods, key)
				skip = skip || g.skip
			}
		}
		if !skip {
			plan.evict = append(plan.evict, p)
		}
	}
	for _, g := range groups {
		if len(g.pods) == 0 {
			continue
		}
		slices.Sort(g.pods)
		if list := strings.Join(g.pods, ", "); g.allowed {
			plan.warnings = append(plan.warnings, fmt.Sprintf("%s: %s", g.will, list))
		} else {
			plan.refused = append(plan.refused, fmt.Sprintf("%s: %s", g.cannot, list))
		}
	}
	slices.SortFunc(plan.evict, func(a, b *corev1.Pod) int { return strings.Compare(podKey(a), podKey(b)) })
	return plan
}

func podKey(p *corev1.Pod) string {
	return p.GetMetadata().GetNamespace() + "/" + p.GetMetadata().GetName()
}

func ended(p *corev1.Pod) bool {
	return p.GetStatus().GetPhase() == "Succeeded" || p.GetStatus().GetPhase() == "Failed"
}

func ownedByDaemonSet(p *corev1.Pod) bool {
	for _, o := range p.GetMetadata().GetOwnerReferences() {
		if o.GetController() && o.GetKind() == "DaemonSet" {
			return true
		}
	}
	return false
}

func hasNoController(p *corev1.Pod) bool {
	for _, o := range p.GetMetadata().GetOwnerReferences() {
		if o.GetController() {
			return false
		}
	}
	return true
}

func hasEmptyDir(p *corev1.Pod) bool {
	for _, v := range p.GetSpec().GetVolumes() {
		if v.GetEmptyDir() != nil {
			return true
		}
	}
	return false
}
