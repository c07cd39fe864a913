// Package queuesort orders the queue by priority, then by age.
package queuesort

import "trireme.dev/services/scheduler/framework"

// Name of the plugin.
const Name = "PrioritySort"

// Plugin is a QueueSort. The zero value is ready.
type Plugin struct{}

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// Less implements framework.QueueSortPlugin: higher priority first, then whoever has waited longest since its last
// attempt.
func (Plugin) Less(a, b *framework.Queued) bool {
	pa, pb := a.Priority(), b.Priority()
	if pa != pb {
		return pa > pb
	}
	return a.Timestamp.Before(b.Timestamp)
}
