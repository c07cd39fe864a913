package runtime

import (
	"fmt"
	"slices"
	"strings"

	"trireme.dev/services/scheduler/framework"
)

// Narrowed is what PreFilter left of the nodes.
type Narrowed struct {
	// Names that remain; nil for all.
	Names map[string]struct{}
	// Plugins that narrowed.
	Plugins []string
}

// Has reports whether the node remains.
func (n *Narrowed) Has(node string) bool {
	if n.Names == nil {
		return true
	}
	_, ok := n.Names[node]
	return ok
}

// Message says why a node that is not among Names was left out.
func (n *Narrowed) Message() string {
	return fmt.Sprintf("node(s) didn't satisfy plugin(s) [%s]", strings.Join(n.Plugins, " "))
}

// RunPreFilter runs PreFilter of all plugins and intersects their nodes. An Unschedulable does not stop it, so that later
// plugins leave their state for preemption; everything worse does.
func (f *Framework) RunPreFilter(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Snapshot) (Narrowed, *framework.Status) {
	var (
		out      Narrowed
		rejected *framework.Status
	)
	for at, p := range f.preFilter {
		f.running.site.Store(f.running.preFilter[at])
		begun := state.Begin()
		result, st := p.PreFilter(state, pod, nodes)
		state.End(PreFilter, p.Name(), begun, 1, st)
		if st.IsSkip() {
			state.SkipFilter(p.Name())
			continue
		}
		st = st.WithPlugin(p.Name())
		switch {
		case st.Code() == framework.Unschedulable, st.Code() == framework.Pending:
			rejected = st
			continue
		case st.Code() == framework.UnschedulableAndUnresolvable:
			return out, st
		case !st.IsSuccess():
			return out, asError("PreFilter", st)
		}
		if result == nil || result.NodeNames == nil {
			continue
		}
		out.Plugins = append(out.Plugins, p.Name())
		names := make(map[string]struct{})
		for n := range result.NodeNames {
			if _, ok := out.Names[n]; ok || out.Names == nil {
				names[n] = struct{}{}
			}
		}
		out.Names = names
		if len(names) == 0 {
			slices.Sort(out.Plugins)
			message := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", out.Plugins)
			if len(out.Plugins) == 1 {
				message = "node(s) didn't satisfy plugin " + out.Plugins[0]
			}
			return out, framework.NewStatus(framework.UnschedulableAndUnresolvable, message).WithPlugin(p.Name())
		}
	}
	slices.Sort(out.Plugins)
	return out, rejected
}

// RunFilterPass has the filters judge the nodes at the positions open, which ascend, one filter after the other, each looking at
// those that the filters before it left. It returns the positions that remain, in the memory of open. What is neither
// success nor a rejection becomes an Error.
func (f *Framework) RunFilterPass(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, v *framework.Verdicts) ([]int32, *framework.Status) {
	return f.filterPass(state, pod, nodes, open, v, false)
}

// RunNodeFilterPass is the same by those filters alone that look at no pods on nodes.
func (f *Framework) RunNodeFilterPass(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, v *framework.Verdicts) ([]int32, *framework.Status) {
	return f.filterPass(state, pod, nodes, open, v, true)
}

func (f *Framework) filterPass(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, v *framework.Verdicts, nodesOnly bool) ([]int32, *framework.Status) {
	for at, p := range f.filter {
		if len(open) == 0 {
			break
		}
		if _, ok := p.(framework.NodeFilterPlugin); nodesOnly && !ok {
			continue
		}
		if state.FilterSkipped(p.Name()) {
			continue
		}
		f.running.site.Store(f.running.filter[at])
		begun, before := state.Begin(), v.Count()
		v.From(p.Name())
		var st *framework.Status
		if x, ok := p.(framework.FilterPassPlugin); ok {
			st = x.FilterPass(state, pod, nodes, open, v)
		} else {
			st = filterEach(p, state, pod, nodes, open, v)
		}
		if !st.IsSuccess() {
			state.End(Filter, p.Name(), begun, len(open), st)
			return nil, asError("Filter", st.WithPlugin(p.Name()))
		}
		if begun.IsZero() && v.Count() == before {
			continue
		}
		looked := len(open)
		if v.Count() != before {
			left := open[:0]
			for _, i := range open {
				if !v.Rejected(i) {
					left = append(left, i)
				}
			}
			open = left
		}
		if len(open) == 0 {
			st = v.LastOf(p.Name())
		}
		state.End(Filter, p.Name(), begun, looked, st)
	}
	return open, nil
}

func filterEach(p framework.FilterPlugin, state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, v *framework.Verdicts) *framework.Status {
	for _, i := range open {
		st := p.Filter(state, pod, nodes.Nodes[i])
		if st.IsSuccess() {
			continue
		}
		if !st.IsRejected() {
			return framework.AsStatus(errOf(st))
		}
		v.Reject(i, v.Reason(st))
	}
	return nil
}

// RunFilter judges one node by the filters alone and stops at the first that rejects it.
func (f *Framework) RunFilter(state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	for _, p := range f.filter {
		if state.FilterSkipped(p.Name()) {
			continue
		}
		st := p.Filter(state, pod, node)
		if st.IsSuccess() {
			continue
		}
		st = st.WithPlugin(p.Name())
		if !st.IsRejected() {
			return asError("Filter", st)
		}
		return st
	}
	return nil
}

// Rejections are what all filters have against one node, where RunFilter stops at the first. Errors are none.
func (f *Framework) Rejections(state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) []*framework.Status {
	var out []*framework.Status
	for _, p := range f.filter {
		if state.FilterSkipped(p.Name()) {
			continue
		}
		if st := p.Filter(state, pod, node); st.IsRejected() {
			out = append(out, st.WithPlugin(p.Name()))
		}
	}
	return out
}

// RunFilters implements framework.Handle.
func (f *Framework) RunFilters(state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if st := f.RunFilter(state, pod, node); !st.IsSuccess() {
		return st
	}
	return f.RunFiltersAhead(state, pod, node)
}

// RunFiltersAhead judges a node, which passes as it is, with the pods on it for which room is being made there and that
// go before pod.
func (f *Framework) RunFiltersAhead(state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return f.RunFiltersWith(state, pod, node, Ahead(pod, f.Nominated(node.Name()), pod.UID()))
}

// RunFiltersWith is the same with these pods.
func (f *Framework) RunFiltersWith(state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo, nominated []*framework.PodInfo) *framework.Status {
	if len(nominated) == 0 {
		return nil
	}
	with, there := state.Clone(), node.Clone()
	for _, n := range nominated {
		there.AddPod(n)
		if st := f.RunAddPod(with, pod, n, there); !st.IsSuccess() {
			return st
		}
	}
	return f.RunFilter(with, pod, there)
}

// Ahead returns those of the nominated pods that go before pod: of its priority or more, but for the one with the uid except,
// and for those of its group, whose pods are placed one after the other, each first where room was made for it.
func Ahead(pod *framework.PodInfo, nominated []*framework.PodInfo, except string) []*framework.PodInfo {
	var out []*framework.PodInfo
	for _, n := range nominated {
		if n.UID() != except && n.Priority() >= pod.Priority() && !n.SameGroup(pod) {
			out = append(out, n)
		}
	}
	return out
}

// RunAddPod and RunRemovePod keep the plugins' cycle state right while pods are moved in thought.
func (f *Framework) RunAddPod(state *framework.CycleState, pod, added *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return f.runExtensions(state, func(x framework.PreFilterExtensions) *framework.Status { return x.AddPod(state, pod, added, node) })
}

// RunRemovePod is the opposite of RunAddPod.
func (f *Framework) RunRemovePod(state *framework.CycleState, pod, removed *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return f.runExtensions(state, func(x framework.PreFilterExtensions) *framework.Status { return x.RemovePod(state, pod, removed, node) })
}

func (f *Framework) runExtensions(state *framework.CycleState, call func(framework.PreFilterExtensions) *framework.Status) *framework.Status {
	for _, p := range f.preFilter {
		x := p.PreFilterExtensions()
		if x == nil || state.FilterSkipped(p.Name()) {
			continue
		}
		if st := call(x); !st.IsSuccess() {
			return asError("PreFilterExtensions", st.WithPlugin(p.Name()))
		}
	}
	return nil
}
