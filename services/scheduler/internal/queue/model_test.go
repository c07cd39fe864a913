package queue

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// check holds the books against each other: every pod is known once and lies in exactly one entity, every entity in
// exactly one place.
func (q *Queue) check() error {
	places := map[*entity]int{}
	for _, h := range []struct {
		heap  *entityHeap
		place place
	}{{&q.active, placeActive}, {&q.backoff, placeBackoff}, {&q.failed, placeFailed}} {
		for i, e := range h.heap.items {
			places[e]++
			if e.place != h.place || e.index != i {
				return fmt.Errorf("entity %s thinks it is at %d/%d, is at %d/%d", e.name(), e.place, e.index, h.place, i)
			}
			if i > 0 && h.heap.less(e, h.heap.items[(i-1)/2]) {
				return fmt.Errorf("heap %d is out of order at %d", h.place, i)
			}
			if len(e.view.Pods) == 0 {
				return fmt.Errorf("an entity without ready pods is in heap %d", h.place)
			}
		}
	}
	teams := 0
	for name, h := range q.teams {
		for i, e := range h.items {
			teams++
			if e.place != placeActive || e.team != name || e.teamIndex != i || (i > 0 && h.less(e, h.items[(i-1)/2])) {
				return fmt.Errorf("entity %s of team %s thinks it is at %d/%d of %s, is at %d", e.name(), name, e.place, e.teamIndex, e.team, i)
			}
		}
	}
	for _, e := range q.active.items {
		if e.team != "" {
			teams--
		}
	}
	if teams != 0 {
		return fmt.Errorf("%d more entities are in teams than think so", teams)
	}
	for e := range q.pool {
		places[e]++
		if e.place != placePool {
			return fmt.Errorf("entity %s in the pool thinks it is at %d", e.name(), e.place)
		}
	}
	for popped, e := range q.inFlight {
		places[e]++
		if e.place != placeInFlight || e.popped != popped || e.marker == nil {
			return fmt.Errorf("entity in flight thinks it is at %d", e.place)
		}
	}
	pods := map[string]int{}
	for e, n := range places {
		if n != 1 {
			return fmt.Errorf("entity %s is in %d places", e.name(), n)
		}
		if e.empty() && e.place != placeInFlight {
			return fmt.Errorf("an empty entity is kept at %d", e.place)
		}
		for _, p := range e.view.Pods {
			pods[p.UID()]++
		}
		for uid := range e.held {
			pods[uid]++
		}
		if !slices.IsSortedFunc(e.view.Pods, comparePods) {
			return fmt.Errorf("pods of %s are out of order", e.name())
		}
	}
	for e := range q.unsaid {
		if places[e] == 0 {
			return fmt.Errorf("an entity to report is nowhere")
		}
	}
	for uid, rec := range q.pods {
		if pods[uid] != 1 {
			return fmt.Errorf("pod %s is in %d entities", uid, pods[uid])
		}
		if rec.entity.held[uid] == nil && !slices.ContainsFunc(rec.entity.view.Pods, func(p *framework.PodInfo) bool { return p == rec.pod }) {
			return fmt.Errorf("pod %s is not in its entity", uid)
		}
	}
	if len(pods) != len(q.pods) {
		return fmt.Errorf("%d pods in entities, %d known", len(pods), len(q.pods))
	}
	if len(q.inFlight) == 0 && q.log.Len() != 0 {
		return fmt.Errorf("%d entries in the log with nothing in flight", q.log.Len())
	}
	return nil
}

// TestNoPodIsLost runs random histories: pods and groups come, change and go, attempts succeed, fail and are rejected,
// events happen, time passes. After each step the books agree with a model that is just the set of waiting pods, and in
// the end every pod that can be scheduled is.
func TestNoPodIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The wrapper keeps rapid from asking for a deadline, which a bubble does not have.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			scheduled := map[framework.GroupKey]int{}
			q := newQueue(func(c *Config) {
				c.Scheduled = func(k framework.GroupKey) int { return scheduled[k] }
				c.Team = func(p *framework.PodInfo) string { return []string{"", "a", "b"}[int(p.UID()[len(p.UID())-1])%3] }
				c.FirstTeam = slices.Min[[]string]
			})
			waiting := map[string]*framework.PodInfo{}
			var flying []*framework.Queued
			next := 0
			anyPod := func() *framework.PodInfo {
				if len(waiting) == 0 {
					t.Skip("no pod")
				}
				return waiting[rapid.SampledFrom(slices.Sorted(maps.Keys(waiting))).Draw(t, "pod")]
			}
			group := rapid.SampledFrom([]string{"", "", "g", "h"})
			done := func(o func(*framework.Queued) Outcome) {
				if len(flying) == 0 {
					t.Skip("nothing in flight")
				}
				i := rapid.IntRange(0, len(flying)-1).Draw(t, "attempt")
				p := flying[i]
				flying = slices.Delete(flying, i, i+1)
				q.Done(p, o(p))
			}
			bind := func(p *framework.Queued) Outcome {
				var uids []string
				for _, info := range p.Pods {
					if _, ok := waiting[info.UID()]; ok {
						uids = append(uids, info.UID())
						delete(waiting, info.UID())
						scheduled[p.GroupKey]++
					}
				}
				return Outcome{Scheduled: uids}
			}
			t.Repeat(map[string]func(*rapid.T){
				"add": func(t *rapid.T) {
					change := []func(*corev1.Pod){priority(rapid.Int32Range(0, 2).Draw(t, "priority"))}
					if rapid.Bool().Draw(t, "gated") {
						change = append(change, gates("x"))
					}
					p := pod(fmt.Sprintf("p%03d", next), group.Draw(t, "group"), change...)
					next++
					waiting[p.UID()] = p
					q.Add(p, time.Now())
				},
				"ungate": func(t *rapid.T) {
					old := anyPod()
					key, _ := old.Group()
					p := pod(old.Pod.GetMetadata().GetName(), key.Name, priority(old.Priority()))
					waiting[p.UID()] = p
					q.Update(p)
				},
				"delete": func(t *rapid.T) {
					p := anyPod()
					delete(waiting, p.UID())
					q.Delete(p.UID())
				},
				"set group": func(t *rapid.T) {
					name := rapid.SampledFrom([]string{"g", "h"}).Draw(t, "name")
					if rapid.Bool().Draw(t, "gang") {
						q.SetGroup(gang(name, rapid.Int32Range(1, 4).Draw(t, "minCount")))
					} else {
						q.SetGroup(basic(name))
					}
				},
				"delete group": func(t *rapid.T) {
					q.DeleteGroup(framework.GroupKey{Namespace: "default", Name: rapid.SampledFrom([]string{"g", "h"}).Draw(t, "name")})
				},
				"pop": func(t *rapid.T) {
					if p, _ := pop(q); p != nil {
						flying = append(flying, p)
					}
				},
				"bound": func(*rapid.T) { done(bind) },
				"rejected": func(t *rapid.T) {
					plugin := rapid.SampledFrom([]string{"Fit", "Outside"}).Draw(t, "plugin")
					pending := rapid.Bool().Draw(t, "pending")
					done(func(*framework.Queued) Outcome {
						o := Outcome{Rejected: true, Plugins: []string{plugin}}
						if pending {
							o.Pending = o.Plugins
						}
						return o
					})
				},
				"failed": func(*rapid.T) { done(func(*framework.Queued) Outcome { return Outcome{Failed: true} }) },
				"event": func(t *rapid.T) {
					var except *framework.Queued
					if len(flying) > 0 && rapid.Bool().Draw(t, "own") {
						except = flying[0]
					}
					q.Move(nodeAdded, except)
				},
				"time": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
					q.tick()
				},
				"": func(t *rapid.T) {
					if err := q.check(); err != nil {
						t.Fatal(err)
					}
					if len(q.pods) != len(waiting) {
						t.Fatalf("%d pods in the queue, want %d", len(q.pods), len(waiting))
					}
				},
			})
			// Open all gates: then everything must come out.
			for len(flying) > 0 {
				q.Done(flying[0], Outcome{Failed: true})
				flying = flying[1:]
			}
			q.SetGroup(gang("g", 1))
			q.SetGroup(basic("h"))
			for _, uid := range slices.Sorted(maps.Keys(waiting)) {
				key, _ := waiting[uid].Group()
				waiting[uid] = pod(waiting[uid].Pod.GetMetadata().GetName(), key.Name)
				q.Update(waiting[uid])
			}
			for range 2 { // the pool's flush, then the backoff
				time.Sleep(5*time.Minute + 30*time.Second)
				q.tick()
				for p, _ := pop(q); p != nil; p, _ = pop(q) {
					q.Done(p, bind(p))
				}
			}
			if len(waiting) != 0 || len(q.pods) != 0 {
				t.Fatalf("%d pods never came out, %d are left in the books", len(waiting), len(q.pods))
			}
		})
	})
}
