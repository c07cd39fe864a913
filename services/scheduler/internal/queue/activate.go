package queue

import "trireme.dev/services/scheduler/framework"

const eventActivate = "ForceActivate"

// Activate has pods tried at once, with all that is tried together with them: they leave the pool and the backoffs, unless a
// gate holds them. Those in flight come back at once should their attempt fail.
func (q *Queue) Activate(pods []*framework.PodInfo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, pod := range pods {
		rec := q.pods[pod.UID()]
		if rec == nil {
			continue
		}
		switch e := rec.entity; e.place {
		case placeActive:
		case placeInFlight:
			e.forced = true
		default:
			q.detach(e)
			q.recheck(e)
			e.until = e.view.Timestamp
			q.admit(e, false, eventActivate)
		}
	}
}
