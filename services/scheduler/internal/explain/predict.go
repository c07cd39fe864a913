package explain

import (
	"slices"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// ending is a running pod and when it ends at the latest.
type ending struct {
	pod *framework.PodInfo
	at  time.Time
}

// endOf is when a running pod ends at the latest; false where nothing bounds that.
func endOf(pod *corev1.Pod) (time.Time, bool) {
	start, limit := pod.GetStatus().GetStartTime(), pod.GetSpec().ActiveDeadlineSeconds
	if start == nil || limit == nil {
		return time.Time{}, false
	}
	return start.AsTime().Add(time.Duration(*limit) * time.Second), true
}

// predict finds the earliest time at which so many pods of one node will have ended that fits holds there: nodes has those
// of each node that end, fits is asked with the ones that are gone by then. Among equals the first node wins. False where
// no ending helps.
func predict(nodes [][]ending, fits func(node int, gone []*framework.PodInfo) bool) (node int, at time.Time, ok bool) {
	for i, endings := range nodes {
		endings = slices.Clone(endings)
		slices.SortStableFunc(endings, func(a, b ending) int { return a.at.Compare(b.at) })
		var gone []*framework.PodInfo
		for k, e := range endings {
			if ok && !e.at.Before(at) {
				break // another node is ready by then
			}
			gone = append(gone, e.pod)
			if k+1 < len(endings) && endings[k+1].at.Equal(e.at) {
				continue
			}
			if fits(i, gone) {
				node, at, ok = i, e.at, true
				break
			}
		}
	}
	return node, at, ok
}

// start predicts when a pod could start that fits nowhere now. The cache does not follow statuses, so pods has them.
func (t *trial) start(j *judgement, pod *framework.PodInfo, pods framework.Lister[*corev1.Pod]) (node string, at time.Time, ok bool) {
	var (
		endings [][]ending
		infos   []*framework.NodeInfo
	)
	for _, i := range j.verdicts.Resolvable() {
		n := t.snapshot.Nodes()[i]
		var ends []ending
		for _, p := range n.Pods {
			now, _ := pods.Get(p.Namespace(), p.Pod.GetMetadata().GetName())
			if now.GetMetadata().GetUid() != p.UID() {
				continue // it is gone
			}
			if at, ok := endOf(now); ok {
				ends = append(ends, ending{p, at})
			}
		}
		if len(ends) > 0 {
			endings, infos = append(endings, ends), append(infos, n)
		}
	}
	k, at, ok := predict(endings, func(node int, gone []*framework.PodInfo) bool {
		state, there := j.state.Clone(), infos[node].Clone()
		for _, p := range gone {
			if there.RemovePod(p.UID()) != nil || !t.fw.RunRemovePod(state, pod, p, there).IsSuccess() {
				return false
			}
		}
		return t.fw.RunFilters(state, pod, there).IsSuccess()
	})
	if !ok {
		return "", time.Time{}, false
	}
	return infos[k].Name(), at, true
}
