package framework

// PreEnqueuePlugin decides whether a pod may be tried at all. It is called with the queue locked, so it must be quick
// and must not call back.
type PreEnqueuePlugin interface {
	Plugin
	// PreEnqueue holds the pod back with any status but success. A member of a gang that is held back is not counted
	// as waiting.
	PreEnqueue(pod *PodInfo) *Status
}

// PreEnqueueGroupPlugin decides whether a group of pods may be tried. It is called with the queue locked, after
// PreEnqueue of each of its members.
type PreEnqueueGroupPlugin interface {
	Plugin
	// PreEnqueueGroup holds the group back with any status but success. group.Pods are the members that wait to be
	// scheduled and passed PreEnqueue.
	PreEnqueueGroup(group *Queued) *Status
}

// QueueSortPlugin orders the queue. A profile has exactly one, and all profiles of a scheduler the same.
type QueueSortPlugin interface {
	Plugin
	// Less reports whether a is to be tried before b. It must be a strict weak order of immutable properties.
	Less(a, b *Queued) bool
}

// EnqueueExtensions says what can turn a plugin's rejection. A plugin at PreEnqueue, PreFilter, Filter, Reserve or
// Permit that does not implement it is asked again after every event; one that returns none is asked again only when
// the pool of unschedulable pods is flushed.
type EnqueueExtensions interface {
	Plugin
	// EventsToRegister is called once, when the profile is built.
	EventsToRegister() []EventHint
}
