package replicaset

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// deletionCost is the annotation by which users say which pods to keep: the lower the cost, the sooner a pod goes.
const deletionCost = "controller.kubernetes.io/pod-deletion-cost"

// Active tells whether a pod counts as a replica: it has not ended and is not on its way out.
func Active(pod *corev1.Pod) bool {
	phase := pod.GetStatus().GetPhase()
	return phase != "Succeeded" && phase != "Failed" && pod.GetMetadata().GetDeletionTimestamp() == nil
}

// readySince returns since when a pod is ready, and whether it is.
func readySince(pod *corev1.Pod) (time.Time, bool) {
	for _, c := range pod.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			return c.GetLastTransitionTime().AsTime(), c.GetStatus() == "True"
		}
	}
	return time.Time{}, false
}

// available tells whether a pod has been ready for long enough, and otherwise how much longer it needs; zero where
// waiting alone does not help.
func available(pod *corev1.Pod, minReady time.Duration, now time.Time) (ok bool, wait time.Duration) {
	since, ready := readySince(pod)
	if !ready {
		return false, 0
	}
	if wait := since.Add(minReady).Sub(now); wait > 0 {
		return false, wait
	}
	return true, 0
}

// Victims chooses which of the pods to delete, n of them, in Kubernetes' order; the first rule that tells two pods apart
// decides: without a node before with one; Pending before Unknown before Running; not ready before ready; lower
// deletion cost; more siblings on the same node; ready more recently; more restarts; newer. Times are compared in
// powers of two of their age, so that pods made together are not told apart by chance, and what is left to choose
// falls to the UID.
func Victims(pods []*corev1.Pod, n int, now time.Time) []*corev1.Pod {
	siblings := map[string]int{}
	for _, p := range pods {
		if _, ready := readySince(p); ready {
			siblings[p.GetSpec().GetNodeName()]++
		}
	}
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *corev1.Pod) int {
		readyA, isReadyA := readySince(a)
		readyB, isReadyB := readySince(b)
		return cmp.Or(
			falseFirst(a.GetSpec().GetNodeName() != "", b.GetSpec().GetNodeName() != ""),
			cmp.Compare(phaseRank(a), phaseRank(b)),
			falseFirst(isReadyA, isReadyB),
			cmp.Compare(costOf(a), costOf(b)),
			cmp.Compare(siblings[b.GetSpec().GetNodeName()], siblings[a.GetSpec().GetNodeName()]),
			compareAge(readyA, readyB, isReadyA && isReadyB, now),
			cmp.Compare(restarts(b), restarts(a)),
			compareAge(created(a), created(b), true, now),
			cmp.Compare(a.GetMetadata().GetUid(), b.GetMetadata().GetUid()),
		)
	})
	return sorted[:min(n, len(sorted))]
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

func phaseRank(pod *corev1.Pod) int {
	switch pod.GetStatus().GetPhase() {
	case "", "Pending":
		return 0
	case "Unknown":
		return 1
	default:
		return 2
	}
}

// costOf reads the deletion cost; the gateway refuses no annotation, so one that is no number counts as 0.
func costOf(pod *corev1.Pod) int64 {
	cost, err := strconv.ParseInt(pod.GetMetadata().GetAnnotations()[deletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return cost
}

func restarts(pod *corev1.Pod) int32 {
	var most int32
	for _, c := range pod.GetStatus().GetContainerStatuses() {
		most = max(most, c.GetRestartCount())
	}
	return most
}

func created(pod *corev1.Pod) time.Time { return pod.GetMetadata().GetCreationTimestamp().AsTime() }

// compareAge puts the younger first, ages compared by their power of two in seconds.
func compareAge(a, b time.Time, applies bool, now time.Time) int {
	if !applies {
		return 0
	}
	return cmp.Compare(magnitude(now.Sub(a)), magnitude(now.Sub(b)))
}

func magnitude(age time.Duration) int {
	return bits.Len64(uint64(max(0, age) / time.Second))
}
