package volumebinding

import (
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/internal/claims"
)

// mates are the members of a gang that a cycle has put on nodes in thought so far, and the volumes that they will choose there:
// Reserve, which chooses for good, comes after all of them. It is the cycle's goroutine's.
type mates struct {
	pods []framework.Assignment
	choices
}

// choices are volumes by the uid of the claim that they are chosen for, and the other way round.
type choices struct {
	volumes, claims map[string]string
}

// allows reports whether a claim may have a volume as far as the choices go.
func (c choices) allows(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	name, uid := pv.GetMetadata().GetName(), claim.GetMetadata().GetUid()
	volume, chose := c.volumes[uid]
	other, taken := c.claims[name]
	return (!chose || volume == name) && (!taken || other == uid)
}

// matesChoices is what the members of the gang in progress choose. Those that were there the last time are not asked again.
func (p *Plugin) matesChoices(snapshot *framework.Snapshot) choices {
	placed, m := snapshot.Mates(), &p.mates
	if len(placed) < len(m.pods) || !same(placed[:len(m.pods)], m.pods) {
		*m = mates{}
	}
	for _, a := range placed[len(m.pods):] {
		m.pods = append(m.pods, a)
		if !claims.Any(a.Pod.Pod) {
			continue
		}
		s, st := p.claims(a.Pod)
		if !st.IsSuccess() {
			continue
		}
		planned, st := p.plan(s, snapshot.Node(a.Node).Node, m.choices)
		if !st.IsSuccess() || len(planned.bind) == 0 {
			continue
		}
		if m.volumes == nil {
			m.choices = choices{map[string]string{}, map[string]string{}}
		}
		for _, b := range planned.bind {
			name, uid := b.volume.GetMetadata().GetName(), b.claim.GetMetadata().GetUid()
			m.volumes[uid], m.choices.claims[name] = name, uid
		}
	}
	return m.choices
}

func same(a, b []framework.Assignment) bool {
	for i := range a {
		if a[i].Pod != b[i].Pod || a[i].Node != b[i].Node {
			return false
		}
	}
	return true
}
