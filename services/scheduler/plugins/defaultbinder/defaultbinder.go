// Package defaultbinder binds pods through the gateway.
package defaultbinder

import (
	"context"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "DefaultBinder"

// Plugin is a Bind.
type Plugin struct{ binder framework.Binder }

// New returns a binder that goes through h.
func New(h framework.Handle) *Plugin { return &Plugin{binder: h.Binder()} }

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// Bind implements framework.BindPlugin: the group is one transaction.
func (p *Plugin) Bind(ctx context.Context, group []framework.Assignment) *framework.Status {
	bindings := make([]*corev1.Binding, len(group))
	for i, a := range group {
		meta := a.Pod.Pod.GetMetadata()
		bindings[i] = &corev1.Binding{
			Namespace: meta.GetNamespace(),
			PodName:   meta.GetName(),
			PodUid:    meta.GetUid(),
			NodeName:  a.Node,
		}
	}
	return framework.AsStatus(p.binder.Bind(ctx, bindings))
}
