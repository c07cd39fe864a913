// Package queuequota holds pods to the shares of their queues: a pod that would take its queue, or one above it, beyond its
// limit, or use what is kept for others, is refused before any node is looked at. Package quota does the sums.
package queuequota

import (
	"fmt"

	"trireme.dev/client/selector"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/quota"
)

// Name of the plugin.
const Name = "QueueQuota"

// Plugin is a PreFilter. Make it with New. It belongs to one cycle at a time.
type Plugin struct {
	handle  framework.Handle
	version uint64 // of the queues below
	tree    *quota.Tree
	spaces  map[string]*selector.Labels // of queues that take pods of some namespaces only
	asks    quota.Amounts               // reused
}

// New returns the plugin.
func New(h framework.Handle) *Plugin { return &Plugin{handle: h, asks: quota.Amounts{}} }

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (*Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.ClusterEvent{Resource: framework.QueueObject, Action: framework.AllActions}},
		{Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete | framework.UpdatePodLabel | framework.UpdatePodScaleDown}},
		{Event: framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: framework.UpdatePodLabel | framework.UpdatePodScaleDown}},
		{Event: framework.ClusterEvent{Resource: framework.Namespace, Action: framework.AllActions}},
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeAllocatable}},
	}
}

// PreFilter implements framework.PreFilterPlugin. Taking pods off nodes is no way out: the rejection is final.
func (p *Plugin) PreFilter(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	name := framework.QueueOf(pod, nodes.NamespaceLabels(pod.Namespace()))
	if name == "" {
		return nil, nil
	}
	books := nodes.Books()
	if p.version != books.Version || p.tree == nil {
		p.learn(books)
	}
	if l := p.spaces[name]; l != nil && !l.Matches(nodes.NamespaceLabels(pod.Namespace())) {
		return nil, refuse("queue %s takes no pods of namespace %s", name, pod.Namespace())
	}
	clear(p.asks)
	for resource, v := range pod.Uses {
		if v > 0 {
			p.asks[resource] = v
		}
	}
	if r := p.tree.Admit(name, p.asks, quota.Cluster{Capacity: books.Capacity, Used: books.Used}); r != nil {
		return nil, refuse("%s", r.Message)
	}
	return nil, nil
}

func refuse(format string, args ...any) *framework.Status {
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, fmt.Sprintf(format, args...))
}

func (p *Plugin) learn(books *framework.Books) {
	p.version, p.tree = books.Version, quota.OfQueues(books.Queues)
	p.spaces = map[string]*selector.Labels{}
	for _, q := range books.Queues {
		if s := q.GetSpec().GetNamespaceSelector(); s != nil {
			p.spaces[q.GetMetadata().GetName()] = spaces(q)
		}
	}
}

// spaces of one that cannot be read, which the gateway does not let happen, are none.
func spaces(q *schedulingv1.Queue) *selector.Labels {
	l, err := selector.FromLabelSelector(q.GetSpec().GetNamespaceSelector())
	if err != nil {
		return selector.Nothing()
	}
	return l
}

// PreFilterExtensions implements framework.PreFilterPlugin.
func (*Plugin) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Sign implements framework.SignPlugin: nodes are judged the same whatever the queue, but equals in a group share its refusal.
func (p *Plugin) Sign(pod *framework.PodInfo, sig *framework.Signature) bool {
	nodes := p.handle.Snapshot()
	if name := framework.QueueOf(pod, nodes.NamespaceLabels(pod.Namespace())); name != "" && sig.Field("queue") {
		sig.Text(name)
		sig.Text(pod.Namespace())
	}
	return true
}
