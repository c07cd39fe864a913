package scheduler

import (
	"trireme.dev/client/informer"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/explain"
)

// explain serves SchedulerService over the parts in deps, where the scheduler listens, and returns what is to be told of
// attempts.
func (s *Scheduler) explain(factory *informer.Factory, deps explain.Deps) *explain.Attempts {
	pods, groups := informer.Of[*corev1.Pod](factory, informer.Config{}), informer.Of[*schedulingv1.PodGroup](factory, informer.Config{})
	attempts := explain.NewAttempts()
	pods.AddHandler(informer.Handler[*corev1.Pod]{
		Delete: func(p *corev1.Pod) { attempts.Forget(p.GetMetadata().GetUid()) },
	})
	groups.AddHandler(informer.Handler[*schedulingv1.PodGroup]{
		Delete: func(g *schedulingv1.PodGroup) {
			attempts.ForgetGroup(framework.GroupKey{Namespace: g.GetMetadata().GetNamespace(), Name: g.GetMetadata().GetName()})
		},
	})
	deps.Pods, deps.Groups, deps.Attempts = pods.Lister(), groups.Lister(), attempts
	deps.Leads = s.leads.Load
	if s.server != nil {
		schedulingv1.RegisterSchedulerServiceServer(s.server, explain.New(deps))
	}
	return attempts
}
