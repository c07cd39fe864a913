package noderesources

import (
	"math"

	"trireme.dev/services/scheduler/framework"
)

// BalancedName is the name of BalancedAllocation.
const BalancedName = "NodeResourcesBalancedAllocation"

// BalancedAllocation is a Score: it prefers the node on which the pod evens out the shares in which cpu and memory are
// used. The zero value is ready.
type BalancedAllocation struct{}

// Name implements framework.Plugin.
func (BalancedAllocation) Name() string { return BalancedName }

// PreScore implements framework.PreScorePlugin: a pod that asks for neither cpu nor memory balances nothing.
func (BalancedAllocation) PreScore(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Columns, _ []int32) *framework.Status {
	if pod.Request.MilliCPU == 0 && pod.Request.Memory == 0 {
		return framework.NewStatus(framework.Skip)
	}
	return nil
}

// Score implements framework.ScorePlugin: 75 where the pod changes nothing, up to 100 where it evens things out, down
// to 50 where it makes them more uneven.
func (BalancedAllocation) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	with := evenness(node, pod.Request.MilliCPU, pod.Request.Memory)
	without := evenness(node, 0, 0)
	const half = framework.MaxScore / 2
	return half + (half+with-without)/2, nil
}

// evenness is 100 where cpu and memory are used in equal shares, 50 where one is full and the other empty.
func evenness(node *framework.NodeInfo, milliCPU, memory int64) int64 {
	cpu, ok1 := share(node.Requested.MilliCPU+milliCPU, node.Allocatable.MilliCPU)
	mem, ok2 := share(node.Requested.Memory+memory, node.Allocatable.Memory)
	var deviation float64
	if ok1 && ok2 {
		deviation = math.Abs(cpu-mem) / 2 // the standard deviation of two values
	}
	return int64((1 - deviation) * float64(framework.MaxScore))
}

func share(used, have int64) (float64, bool) {
	if have == 0 {
		return 0, false
	}
	return min(1, float64(used)/float64(have)), true
}
