// Package tainttoleration keeps pods off nodes with taints that they do not tolerate, and prefers nodes with fewer taints
// that ask softly.
package tainttoleration

import (
	"fmt"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "TaintToleration"

const stateKey = Name + "/preferNoSchedule"

// Plugin is a Filter and a Score. The zero value is ready.
type Plugin struct{}

// soft are the tolerations that may bear a PreferNoSchedule taint.
type soft []*corev1.Toleration

// Clone implements framework.StateData; the list is never changed.
func (s soft) Clone() framework.StateData { return s }

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// FiltersNodes implements framework.NodeFilterPlugin.
func (Plugin) FiltersNodes() {}

// EventsToRegister implements framework.EnqueueExtensions.
func (Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{
			Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeTaint},
			Hint: func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
				tolerations := pod.Pod.GetSpec().GetTolerations()
				now := framework.UntoleratedTaint(change.NewNode.GetSpec().GetTaints(), tolerations)
				if now != nil {
					return framework.QueueSkip
				}
				if change.OldNode != nil && framework.UntoleratedTaint(change.OldNode.GetSpec().GetTaints(), tolerations) == nil {
					return framework.QueueSkip
				}
				return framework.Queue
			},
		},
		{Event: framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: framework.UpdatePodToleration}},
	}
}

// Filter implements framework.FilterPlugin. The first taint that is not tolerated is named.
func (Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	taints := node.Taints()
	if len(taints) == 0 {
		return nil
	}
	if taint := framework.UntoleratedTaint(taints, pod.Pod.GetSpec().GetTolerations()); taint != nil {
		return rejection(taint)
	}
	return nil
}

func rejection(taint *corev1.Taint) *framework.Status {
	return framework.NewStatus(framework.UnschedulableAndUnresolvable,
		fmt.Sprintf("node(s) had untolerated taint {%s: %s}", taint.GetKey(), taint.GetValue()))
}

// FilterPass implements framework.FilterPassPlugin: the taints of a set are looked at once.
func (Plugin) FilterPass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, verdicts *framework.Verdicts) *framework.Status {
	sets := nodes.TaintSets()
	if sets <= 1 {
		return nil
	}
	reasons := make([]framework.Reason, sets) // 0 is not known yet, -1 tolerated
	for _, i := range open {
		set := nodes.TaintSet[i]
		if set == 0 {
			continue
		}
		if reasons[set] == 0 {
			reasons[set] = -1
			if taint := framework.UntoleratedTaint(nodes.Taints(set), pod.Pod.GetSpec().GetTolerations()); taint != nil {
				reasons[set] = verdicts.Reason(rejection(taint))
			}
		}
		if reasons[set] > 0 {
			verdicts.Reject(i, reasons[set])
		}
	}
	return nil
}

// PreScore implements framework.PreScorePlugin. It always scores, so that all nodes get the weight where no node has a
// soft taint, as people who compare scores expect.
func (Plugin) PreScore(state *framework.CycleState, pod *framework.PodInfo, _ *framework.Columns, _ []int32) *framework.Status {
	var s soft
	for _, t := range pod.Pod.GetSpec().GetTolerations() {
		if e := t.GetEffect(); e == "" || e == framework.TaintPreferNoSchedule {
			s = append(s, t)
		}
	}
	state.Write(stateKey, s)
	return nil
}

// Score implements framework.ScorePlugin: the number of soft taints not tolerated.
func (Plugin) Score(state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	taints := node.Taints()
	if len(taints) == 0 {
		return 0, nil
	}
	tolerations, _ := state.Read(stateKey).(soft)
	return tolerations.untolerated(taints), nil
}

func (s soft) untolerated(taints []*corev1.Taint) (n int64) {
	for _, taint := range taints {
		if taint.GetEffect() == framework.TaintPreferNoSchedule && !framework.Tolerates(s, taint) {
			n++
		}
	}
	return n
}

// ScorePass implements framework.ScorePassPlugin.
func (Plugin) ScorePass(state *framework.CycleState, _ *framework.PodInfo, nodes *framework.Columns, feasible []int32, scores []int64) *framework.Status {
	sets := nodes.TaintSets()
	if sets <= 1 {
		clear(scores)
		return nil
	}
	tolerations, _ := state.Read(stateKey).(soft)
	counts := make([]int64, sets)
	for set := range counts {
		counts[set] = tolerations.untolerated(nodes.Taints(int32(set)))
	}
	for k, i := range feasible {
		scores[k] = counts[nodes.TaintSet[i]]
	}
	return nil
}

// NormalizesByMax implements framework.MaxNormalizer.
func (Plugin) NormalizesByMax() bool { return true }

// Sign implements framework.SignPlugin.
func (Plugin) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	signature.Tolerations(pod.Pod.GetSpec().GetTolerations())
	return true
}

// NormalizeScore implements framework.NormalizeScorePlugin: fewest is best.
func (Plugin) NormalizeScore(_ *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, _ []int32, scores []int64) *framework.Status {
	framework.NormalizeDefault(scores, true)
	return nil
}
