package noderesources

import (
	"math"

	"trireme.dev/services/scheduler/framework"
)

// BalancedName is the name of BalancedAllocation.
const BalancedName = "NodeResourcesBalancedAllocation"

// BalancedAllocation is a Score: it prefers the node on which the pod evens out the shares in which resources, cpu and
// memory by default, are used. Make it with NewBalanced.
type BalancedAllocation struct{ resources []string }

// NewBalanced returns a BalancedAllocation; args must be valid, absent ones count as defaults.
func NewBalanced(args *BalancedArgs) *BalancedAllocation {
	list := args.Resources
	if len(list) == 0 {
		list = defaultResources()
	}
	b := &BalancedAllocation{}
	for _, r := range list {
		b.resources = append(b.resources, r.Name)
	}
	return b
}

// Name implements framework.Plugin.
func (*BalancedAllocation) Name() string { return BalancedName }

// PreScore implements framework.PreScorePlugin: a pod that asks for none of the resources balances nothing.
func (b *BalancedAllocation) PreScore(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Columns, _ []int32) *framework.Status {
	for _, name := range b.resources {
		if pod.Request.Get(name) != 0 {
			return nil
		}
	}
	return framework.NewStatus(framework.Skip)
}

// Score implements framework.ScorePlugin: 75 where the pod changes nothing, up to 100 where it evens things out, down
// to 50 where it makes them more uneven.
func (b *BalancedAllocation) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	with, without := make([]float64, 0, 4), make([]float64, 0, 4)
	for _, name := range b.resources {
		used, have := requestedUse(name, pod, node)
		if have == 0 {
			continue
		}
		with = append(with, share(used, have))
		without = append(without, share(used-pod.Request.Get(name), have))
	}
	return balance(evenness(with), evenness(without)), nil
}

// ScorePass implements framework.ScorePassPlugin.
func (b *BalancedAllocation) ScorePass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, feasible []int32, scores []int64) *framework.Status {
	var room [4]use
	uses := room[:0]
	for _, name := range b.resources {
		if u, ok := requestedColumn(name, pod, nodes); ok {
			uses = append(uses, u)
		}
	}
	if len(uses) == 2 {
		balanceTwo(uses[0], uses[1], feasible, scores)
		return nil
	}
	with, without := make([]float64, 0, len(uses)), make([]float64, 0, len(uses))
	for k, i := range feasible {
		with, without = with[:0], without[:0]
		for u := range uses {
			if have := uses[u].have[i]; have != 0 {
				with = append(with, share(uses[u].used[i]+uses[u].want, have))
				without = append(without, share(uses[u].used[i], have))
			}
		}
		scores[k] = balance(evenness(with), evenness(without))
	}
	return nil
}

// balanceTwo is the case of two resources, without lists.
func balanceTwo(a, b use, feasible []int32, scores []int64) {
	for k, i := range feasible {
		haveA, haveB := a.have[i], b.have[i]
		if haveA == 0 || haveB == 0 {
			scores[k] = balance(framework.MaxScore, framework.MaxScore)
			continue
		}
		usedA, usedB := a.used[i], b.used[i]
		with := math.Abs(share(usedA+a.want, haveA)-share(usedB+b.want, haveB)) / 2
		without := math.Abs(share(usedA, haveA)-share(usedB, haveB)) / 2
		scores[k] = balance(int64((1-with)*float64(framework.MaxScore)), int64((1-without)*float64(framework.MaxScore)))
	}
}

func balance(with, without int64) int64 {
	const half = framework.MaxScore / 2
	return half + (half+with-without)/2
}

// evenness is 100 where shares are equal, 50 where of two one is full and the other empty: by the standard deviation.
func evenness(shares []float64) int64 {
	var deviation float64
	switch len(shares) {
	case 0, 1:
	case 2:
		deviation = math.Abs(shares[0]-shares[1]) / 2
	default:
		var sum, squares float64
		for _, s := range shares {
			sum += s
		}
		mean := sum / float64(len(shares))
		for _, s := range shares {
			squares += (s - mean) * (s - mean)
		}
		deviation = math.Sqrt(squares / float64(len(shares)))
	}
	return int64((1 - deviation) * float64(framework.MaxScore))
}

func share(used, have int64) float64 { return min(1, float64(used)/float64(have)) }

// Sign implements framework.SignPlugin.
func (*BalancedAllocation) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	sign(pod, signature)
	return true
}
