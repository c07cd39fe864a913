package cycle

import (
	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/recording"
)

// nothing is the entry of an attempt at nothing; of several in a row, the first says it all.
func (c *Cycle) nothing() *recordv1.Entry {
	if c.idle {
		return nil
	}
	c.idle = true
	return &recordv1.Entry{Step: &recordv1.Entry_Idle{Idle: &recordv1.Idle{}}}
}

// attempted is the entry of an attempt; nil where nobody asks for it.
func (c *Cycle) attempted(q *framework.Queued, d Decision, refusal *framework.Status) *recordv1.Entry {
	c.idle = false
	if !c.Steps.Recorded() {
		return nil
	}
	out := &recordv1.Attempt{
		Pods: uids(q.Pods), Number: int32(q.Attempts), Plugins: d.Plugins, Pending: d.Pending, Message: d.Message,
		Refusal: recording.StatusToProto(refusal),
	}
	if q.IsGroup() {
		out.Group = q.GroupKey.String()
	}
	if d.Err != nil {
		out.Error = recording.FirstLine(d.Err.Error())
	}
	for _, a := range d.Placed {
		out.Placed = append(out.Placed, &recordv1.Placed{Pod: a.Pod.UID(), Node: a.Node})
	}
	for _, f := range d.Failed {
		out.Failed = append(out.Failed, &recordv1.Failed{
			Pod: f.Pod.UID(), Message: f.Message, NominatedNode: f.NominatedNode, Clear: f.Clear, Victims: victims(f.Victims),
		})
	}
	return &recordv1.Entry{Step: &recordv1.Entry_Attempt{Attempt: out}}
}

func victims(members []framework.Member) []string {
	var out []string
	for _, m := range members {
		out = append(out, m.Pod.UID())
	}
	return out
}

func uids(pods []*framework.PodInfo) []string {
	if len(pods) == 0 {
		return nil
	}
	out := make([]string, len(pods))
	for i, p := range pods {
		out[i] = p.UID()
	}
	return out
}
