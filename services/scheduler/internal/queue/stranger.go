package queue

import (
	"maps"
	"slices"

	"trireme.dev/services/scheduler/framework"
)

// strangers are waiting pods that name a group but another scheduler than ours: not ours to place, and yet the reason why
// their group cannot be.
type strangers struct {
	groups map[string]framework.GroupKey // by uid of the pod
	pods   map[framework.GroupKey]map[string]*framework.PodInfo
}

// Stranger takes in a pod that another scheduler is to place, if it names a group.
func (q *Queue) Stranger(pod *framework.PodInfo) {
	key, ok := pod.Group()
	if !ok {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.strangers
	if s.pods == nil {
		s.groups, s.pods = make(map[string]framework.GroupKey), make(map[framework.GroupKey]map[string]*framework.PodInfo)
	}
	if s.pods[key] == nil {
		s.pods[key] = make(map[string]*framework.PodInfo)
	}
	s.groups[pod.UID()], s.pods[key][pod.UID()] = key, pod
	q.strange(key)
}

// forgetStranger is for a pod that is gone, or ours, or on a node.
func (q *Queue) forgetStranger(uid string) {
	key, ok := q.strangers.groups[uid]
	if !ok {
		return
	}
	delete(q.strangers.groups, uid)
	delete(q.strangers.pods[key], uid)
	if len(q.strangers.pods[key]) == 0 {
		delete(q.strangers.pods, key)
	}
	q.strange(key)
}

// strange tells the group's entity of its strangers.
func (q *Queue) strange(key framework.GroupKey) {
	e := q.gangs[key]
	if e == nil {
		return
	}
	e.view.Strangers = q.strangersOf(key)
	if e.place == placeInFlight {
		e.changed = true
		return
	}
	q.readmit(e, eventMembers)
}

// strangersOf lists them by name.
func (q *Queue) strangersOf(key framework.GroupKey) []*framework.PodInfo {
	if len(q.strangers.pods[key]) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(q.strangers.pods[key]), comparePods)
}

// Stands reports whether the group of an entity is still the one that it was popped with.
func (q *Queue) Stands(popped *framework.Queued) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	group := q.objects[popped.GroupKey]
	return group != nil && group.GetMetadata().GetUid() == popped.Group.GetMetadata().GetUid()
}
