// Package queue holds what waits to be scheduled and decides when it is tried again. It knows pods, groups and events; it
// never talks to the gateway and never looks at nodes. It stands first in the scheduler's chain: the cycle pops from it
// and gives back what did not fit.
//
// An entity is a lone pod, or all waiting members of a gang. It is in exactly one place:
//
//	                   Add
//	                    │ gates pass            Pop
//	┌── gated ──────► active ────────────────────────► in flight ── Done ──► (gone, or members that remain: again)
//	│  (in pool)        ▲  ▲ backoff over, or                │
//	└─ event of the     │  │ Pop with nothing active         │ rejected
//	   gating plugin    │ backoff ◄── event, hint says Queue ─┤
//	                    │  ▲                                  ▼
//	             error backoff ◄── error            pool (unschedulable)
//
// All methods are safe for concurrent use. Lock order: Queue, then what its Config functions lock.
package queue

import (
	"container/list"
	"sync"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/recording"
)

// Config says how a queue decides. Functions are called with the queue locked and must not call it back, OnGated
// excepted.
type Config struct {
	// Less orders what is ready. Required.
	Less func(a, b *framework.Queued) bool
	// PreEnqueue holds back a pod.
	PreEnqueue func(*framework.PodInfo) *framework.Status
	// PreEnqueueGroup holds back a group.
	PreEnqueueGroup func(*framework.Queued) *framework.Status
	// Events are what plugins registered, by plugin.
	Events map[string][]framework.EventHint
	// Scheduled counts the members of a group that are on nodes.
	Scheduled func(framework.GroupKey) int
	// Team names the Queue object that a pod belongs to, empty for none, and FirstTeam says whose turn it is of several, at
	// least two. Nil for no teams.
	Team      func(*framework.PodInfo) string
	FirstTeam func(teams []string) string
	// OnGated is told what has been held back for GateReportDelay, without the lock.
	OnGated func(Gated)
	// InitialBackoff and MaxBackoff bound the pause after a failed attempt; 1 s and 10 s where zero.
	InitialBackoff, MaxBackoff time.Duration
	// Steps say what time it is. All that changes the queue is called within one.
	Steps *recording.Steps
}

const (
	defaultInitialBackoff = time.Second
	defaultMaxBackoff     = 10 * time.Second
	// flushPeriod and maxUnschedulable are the net under wrong hints: what no event has moved is tried again anyway.
	flushPeriod      = 30 * time.Second
	maxUnschedulable = 5 * time.Minute
	// gateReportDelay keeps a gang whose pods arrive one by one from writing a condition per pod and arrival.
	gateReportDelay = time.Second
)

// Gated is an entity that is held back, with the reason for each of its pods.
type Gated struct {
	GroupKey framework.GroupKey
	Group    *schedulingv1.PodGroup
	// Status of the group as a whole; nil where only some of its pods are held back.
	Status *framework.Status
	Pods   []GatedPod
}

// GatedPod is a pod that is held back.
type GatedPod struct {
	Pod    *framework.PodInfo
	Status *framework.Status
}

// Queue is the scheduling queue. Make it with New, and Run it so that time passes in it.
type Queue struct {
	cfg Config

	mu        sync.Mutex
	pods      map[string]*record                            // by uid
	members   map[framework.GroupKey]map[string]*record     // pods that name a group, by uid
	objects   map[framework.GroupKey]*schedulingv1.PodGroup // groups that exist
	gangs     map[framework.GroupKey]*entity                // group entities
	active    entityHeap                                    // ready
	backoff   entityHeap                                    // rejected, waiting for time
	failed    entityHeap                                    // failed with an error, waiting for time
	pool      map[*entity]struct{}                          // waiting for an event; gated ones too
	refused   map[string]map[*entity]struct{}               // the pool by the plugins that can be asked about an event
	inFlight  map[*framework.Queued]*entity                 // popped
	log       *list.List                                    // pops and the events since, oldest first
	unsaid    map[*entity]time.Time                         // gated ones to report, and when
	ready     chan struct{}                                 // active or backoff has something
	kick      chan struct{}                                 // a deadline may have come nearer
	flushAt   time.Time                                     // when the pool is to be looked through; zero for never
	incoming  incoming
	strangers strangers
	teams     map[string]*teamHeap // ready ones, by team
	// registered are the plugins that registered an event, for the events that have come up.
	registered map[framework.ClusterEvent]map[string]struct{}
}

// record is one waiting pod.
type record struct {
	pod    *framework.PodInfo
	since  time.Time
	entity *entity
	history
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	if cfg.InitialBackoff == 0 {
		cfg.InitialBackoff = defaultInitialBackoff
	}
	if cfg.MaxBackoff == 0 {
		cfg.MaxBackoff = defaultMaxBackoff
	}
	q := &Queue{
		cfg:      cfg,
		pods:     make(map[string]*record),
		members:  make(map[framework.GroupKey]map[string]*record),
		objects:  make(map[framework.GroupKey]*schedulingv1.PodGroup),
		gangs:    make(map[framework.GroupKey]*entity),
		pool:     make(map[*entity]struct{}),
		refused:  make(map[string]map[*entity]struct{}),
		inFlight: make(map[*framework.Queued]*entity),
		log:      list.New(),
		unsaid:   make(map[*entity]time.Time),
		ready:    make(chan struct{}, 1),
		kick:     make(chan struct{}, 1),
		incoming: newIncoming(),

		teams:      make(map[string]*teamHeap),
		registered: make(map[framework.ClusterEvent]map[string]struct{}),
	}
	q.active.less = func(a, b *entity) bool { return q.before(a, b) }
	byExpiry := func(a, b *entity) bool {
		if !a.until.Equal(b.until) {
			return a.until.Before(b.until)
		}
		return q.before(a, b)
	}
	q.backoff.less, q.failed.less = byExpiry, byExpiry
	return q
}

// before orders entities; where the plugin sees no difference, age and then name decide, so that the order never
// depends on chance.
func (q *Queue) before(a, b *entity) bool {
	va, vb := &a.view, &b.view
	if q.cfg.Less(va, vb) {
		return true
	}
	if q.cfg.Less(vb, va) {
		return false
	}
	if !va.InitialTimestamp.Equal(vb.InitialTimestamp) {
		return va.InitialTimestamp.Before(vb.InitialTimestamp)
	}
	return va.Name() < vb.Name()
}

// Add takes in a pod that has waited for a node since then. A pod that is known already is updated.
func (q *Queue) Add(pod *framework.PodInfo, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.pods[pod.UID()]; ok {
		q.update(pod)
		return
	}
	q.forgetStranger(pod.UID())
	rec := &record{pod: pod, since: since, history: history{seen: q.now()}}
	q.pods[pod.UID()] = rec
	if key, ok := pod.Group(); ok {
		if q.members[key] == nil {
			q.members[key] = make(map[string]*record)
		}
		q.members[key][pod.UID()] = rec
	}
	q.attach(rec, eventPodAdd)
}

// Update takes over a waiting pod's new state. Unknown pods are ignored.
func (q *Queue) Update(pod *framework.PodInfo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.pods[pod.UID()]; ok {
		q.update(pod)
	}
}

func (q *Queue) update(pod *framework.PodInfo) {
	rec := q.pods[pod.UID()]
	old := rec.pod
	rec.pod = pod
	e := rec.entity
	wasHeld := e.held[pod.UID()] != nil
	e.replace(pod, q.cfg.PreEnqueue(pod))
	action := podChange(old, pod)
	regated := wasHeld != (e.held[pod.UID()] != nil)
	if action == 0 && !regated {
		return // only its status: nothing that could turn a decision
	}
	change := &framework.Change{
		Event:  framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: action},
		OldPod: old, NewPod: pod,
	}
	switch {
	case e.place == placeInFlight:
		q.record(change, nil)
	case e.gate != nil || regated || e.place != placePool:
		q.readmit(e, change.Event.String())
	default:
		if how := q.hint(e, change); how != hintSkip {
			q.move(e, how, change.Event.String())
		}
	}
}

// Delete forgets a pod: it is gone, bound, or no longer ours. Unknown pods are ignored.
func (q *Queue) Delete(uid string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgetStranger(uid)
	rec := q.pods[uid]
	if rec == nil {
		return
	}
	q.drop(uid)
	if rec.entity.place != placeInFlight {
		q.readmit(rec.entity, eventPodDelete)
	}
}

// drop removes a pod from the books and from its entity, which may be left empty.
func (q *Queue) drop(uid string) {
	rec := q.pods[uid]
	delete(q.pods, uid)
	if key, ok := rec.pod.Group(); ok {
		delete(q.members[key], uid)
		if len(q.members[key]) == 0 {
			delete(q.members, key)
		}
	}
	rec.entity.remove(uid)
	rec.entity.untrace(rec)
}

// SetGroup takes over the state of a group's object.
func (q *Queue) SetGroup(group *schedulingv1.PodGroup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := framework.GroupKey{Namespace: group.GetMetadata().GetNamespace(), Name: group.GetMetadata().GetName()}
	old := q.objects[key]
	q.objects[key] = group
	before, after := framework.Queued{Group: old}, framework.Queued{Group: group}
	event := framework.ClusterEvent{Resource: framework.PodGroup, Action: framework.UpdateOther}
	if old == nil {
		event.Action = framework.Add
	}
	q.regroup(key, event.String(), old == nil || before.MinCount() != after.MinCount() || before.Priority() != after.Priority())
}

// DeleteGroup forgets a group's object. Its waiting members are held back until it comes again.
func (q *Queue) DeleteGroup(key framework.GroupKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.objects, key)
	event := framework.ClusterEvent{Resource: framework.PodGroup, Action: framework.Delete}
	q.regroup(key, event.String(), true)
}

// regroup puts all members of a group where its object's policy wants them.
func (q *Queue) regroup(key framework.GroupKey, event string, changed bool) {
	if e := q.gangs[key]; e != nil {
		e.view.Group = q.objects[key]
	}
	for _, rec := range sortedRecords(q.members[key]) {
		if e := rec.entity; e.place != placeInFlight && e.view.IsGroup() != q.isGang(rec.pod) {
			// Out of its place first: a heap must not see an entity lose its pods one by one. All of them leave.
			q.detach(e)
			e.remove(rec.pod.UID())
			e.untrace(rec)
			if e.empty() {
				q.discard(e)
			}
			q.attach(rec, event)
		}
	}
	if e := q.gangs[key]; e != nil && changed {
		if e.place == placeInFlight {
			e.changed = true
			return
		}
		q.readmit(e, event)
	}
}

// isGang reports whether a pod is scheduled with its group: it names one that is a gang, or that does not exist yet.
func (q *Queue) isGang(pod *framework.PodInfo) bool {
	key, ok := pod.Group()
	if !ok {
		return false
	}
	object := q.objects[key]
	return object == nil || object.GetSpec().GetSchedulingPolicy().GetGang() != nil
}

// attach puts a pod into the entity it belongs to, a new one where there is none.
func (q *Queue) attach(rec *record, event string) {
	var e *entity
	key, _ := rec.pod.Group()
	gang := q.isGang(rec.pod)
	if gang {
		e = q.gangs[key]
	}
	if e == nil {
		e = &entity{}
		e.view.Timestamp, e.view.InitialTimestamp = rec.since, rec.since
		if gang {
			e.view.GroupKey, e.view.Group, e.view.Strangers = key, q.objects[key], q.strangersOf(key)
			q.gangs[key] = e
		}
	}
	if rec.since.Before(e.view.InitialTimestamp) {
		// Only while the queue is filled at the start do pods come out of order, and then nothing has been tried yet.
		e.view.InitialTimestamp = rec.since
		if e.view.Attempts == 0 && e.place != placeInFlight {
			e.view.Timestamp = rec.since
		}
	}
	rec.entity = e
	e.insert(rec.pod, q.cfg.PreEnqueue(rec.pod))
	q.trace(rec, event)
	if e.place == placeInFlight {
		e.changed = true
		return
	}
	q.readmit(e, event)
}

// Len counts the entities that are ready, in backoff (errors included), and in the pool.
func (q *Queue) Len() (active, backoff, pool int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.active.Len(), q.backoff.Len() + q.failed.Len(), len(q.pool)
}

// Pod returns the waiting pod with this uid, nil where there is none.
func (q *Queue) Pod(uid string) *corev1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	if rec := q.pods[uid]; rec != nil {
		return rec.pod.Pod
	}
	return nil
}
