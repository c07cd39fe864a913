package queue

import (
	"container/heap"

	"trireme.dev/services/scheduler/framework"
)

// teamHeap holds the ready entities of one team, whose pods belong to one Queue object.
type teamHeap struct {
	items []*entity
	less  func(a, b *entity) bool
}

// Len implements heap.Interface.
func (h *teamHeap) Len() int { return len(h.items) }

// Less implements heap.Interface.
func (h *teamHeap) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }

// Swap implements heap.Interface.
func (h *teamHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].teamIndex, h.items[j].teamIndex = i, j
}

// Push implements heap.Interface.
func (h *teamHeap) Push(x any) {
	e := x.(*entity)
	e.teamIndex = len(h.items)
	h.items = append(h.items, e)
}

// Pop implements heap.Interface.
func (h *teamHeap) Pop() any {
	last := len(h.items) - 1
	e := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	return e
}

// makeReady puts an entity among those that Pop chooses from.
func (q *Queue) makeReady(e *entity) {
	e.place = placeActive
	q.active.push(e)
	q.enterTeam(e)
}

func (q *Queue) enterTeam(e *entity) {
	if q.cfg.Team == nil || len(e.view.Pods) == 0 {
		return
	}
	if e.team = q.cfg.Team(e.view.Pods[0]); e.team == "" {
		return
	}
	h := q.teams[e.team]
	if h == nil {
		h = &teamHeap{less: q.active.less}
		q.teams[e.team] = h
	}
	heap.Push(h, e)
}

func (q *Queue) leaveTeam(e *entity) {
	h := q.teams[e.team]
	if h == nil {
		return
	}
	heap.Remove(h, e.teamIndex)
	if len(h.items) == 0 {
		delete(q.teams, e.team)
	}
	e.team = ""
}

// unready takes it out again.
func (q *Queue) unready(e *entity) {
	q.active.remove(e)
	q.leaveTeam(e)
}

// next is the ready entity whose turn it is: the first in order, but where it belongs to a team, and other teams have some of
// the same priority, the first of the team that is to go first.
func (q *Queue) next() *entity {
	e := q.active.items[0]
	if e.team == "" || len(q.teams) < 2 {
		return e
	}
	var names []string
	for name, h := range q.teams {
		if h.items[0].view.Priority() == e.view.Priority() {
			names = append(names, name)
		}
	}
	if len(names) < 2 {
		return e
	}
	if h := q.teams[q.cfg.FirstTeam(names)]; h != nil {
		return h.items[0]
	}
	return e
}

// Retag asks anew to which teams pods belong: teams came or went.
func (q *Queue) Retag() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.active.items {
		q.leaveTeam(e)
		q.enterTeam(e)
	}
}

// PendingByTeam counts the pods that wait, wherever they do. The pods of a team are those for which of says its name.
func (q *Queue) PendingByTeam(of func(*framework.PodInfo) string) map[string]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[string]int{}
	for _, rec := range q.pods {
		out[of(rec.pod)]++
	}
	return out
}
