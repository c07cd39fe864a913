package explain

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cycle"
)

const (
	// maxAttempts are remembered of each pod or gang.
	maxAttempts = 5
	// maxEntities have their attempts remembered; those that were tried last.
	maxEntities = 1 << 16
)

// Attempts remembers how the last attempts ended at pods and gangs that wait. Nothing is worked out when one is noted. Make
// it with NewAttempts.
type Attempts struct {
	mu       sync.Mutex
	entities map[string]*list.Element // of *entity
	order    *list.List               // the one that was tried last in front
}

type entity struct {
	key      string
	attempts []attempt // the newest last
}

// attempt is what is kept of one.
type attempt struct {
	number int
	begun  time.Time
	took   time.Duration
	failed []cycle.Failure
	// plugins that rejected.
	plugins []string
	err     error
}

// NewAttempts remembers nothing yet.
func NewAttempts() *Attempts {
	return &Attempts{entities: make(map[string]*list.Element), order: list.New()}
}

// Ended takes note of an attempt. What was placed as a whole is forgotten.
func (a *Attempts) Ended(t cycle.Attempt) {
	key := keyOf(t.Queued)
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.Err == nil && len(t.Decision.Failed) == 0 {
		a.drop(key)
		return
	}
	el := a.entities[key]
	if el == nil {
		el = a.order.PushFront(&entity{key: key})
		a.entities[key] = el
		if a.order.Len() > maxEntities {
			a.drop(a.order.Back().Value.(*entity).key)
		}
	}
	a.order.MoveToFront(el)
	e := el.Value.(*entity)
	if len(e.attempts) == maxAttempts {
		e.attempts = slices.Delete(e.attempts, 0, 1)
	}
	e.attempts = append(e.attempts, attempt{
		number: t.Attempts, begun: t.Begun, took: t.Took, failed: t.Decision.Failed, err: t.Err,
		plugins: slices.Concat(t.Decision.Plugins, t.Decision.Pending),
	})
}

// Forget a pod that is gone.
func (a *Attempts) Forget(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(uid)
}

// ForgetGroup forgets a gang that is gone.
func (a *Attempts) ForgetGroup(key framework.GroupKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(groupKey(key))
}

func (a *Attempts) drop(key string) {
	if el := a.entities[key]; el != nil {
		a.order.Remove(el)
		delete(a.entities, key)
	}
}

// of returns the attempts at what a pod is tried as, the newest first.
func (a *Attempts) of(q *framework.Queued, uid string) []attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := uid
	if q.IsGroup() {
		key = groupKey(q.GroupKey)
	}
	el := a.entities[key]
	if el == nil {
		return nil
	}
	out := slices.Clone(el.Value.(*entity).attempts)
	slices.Reverse(out)
	return out
}

func keyOf(q *framework.Queued) string {
	if q.IsGroup() {
		return groupKey(q.GroupKey)
	}
	return q.Pods[0].UID()
}

// groupKey is no uid.
func groupKey(key framework.GroupKey) string { return "group " + key.String() }

// of returns what the attempt says of one pod; nil where it says nothing.
func (a *attempt) of(uid string) *cycle.Failure {
	for i := range a.failed {
		if a.failed[i].Pod.UID() == uid {
			return &a.failed[i]
		}
	}
	return nil
}
