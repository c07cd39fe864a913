package explain

import (
	"fmt"
	"strings"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

// situation is all that the summary of a pod is made of.
type situation struct {
	pod   *corev1.Pod
	now   time.Time
	state schedulingv1.PodState
	node  string
	// profiles of this scheduler.
	profiles []string
	// gate that holds it back, and whose it is.
	gate, gatePlugin string
	ahead            int
	until            time.Time
	// failure is the error with which the last attempt ended; empty where it did not.
	failure string
	// leaving are the pods that end to make room for it, on the node that is nominated.
	leaving   []string
	nominated string
	// group is the pod's gang; nil where it has none.
	group *group
	// judged is what would come of it now; nil where nobody asked. Of a gang, it is of the first member that fits nowhere.
	judged *judgement
}

// group is the pod's gang.
type group struct {
	name                          string
	exists                        bool
	min, waiting, scheduled, held int
	// tried: the group was placed in thought, and so many fit.
	tried bool
	fit   int
	// left is the member that fits nowhere then, with what it asks for; nil where there is none.
	left *framework.PodInfo
	// domains were tried; closest is the one in which most fit. 0 and empty where the group may be anywhere.
	domains int
	closest string
}

// missing is how many more members have to find a place.
func (g *group) missing() int { return g.min - g.scheduled - g.fit }

// summarize says in one sentence what would help and why, or that nothing has to be done.
func summarize(s *situation) string {
	me := "pod " + framework.Key(s.pod)
	switch s.state {
	case schedulingv1.PodState_POD_STATE_SCHEDULED:
		if why := startsNot(s.pod); why != "" {
			return fmt.Sprintf("Look on node %s, where %s is: %s.", s.node, me, why)
		}
		return fmt.Sprintf("Nothing to do here: %s is on node %s.", me, s.node)
	case schedulingv1.PodState_POD_STATE_ENDED:
		if s.pod.GetMetadata().GetDeletionTimestamp() != nil {
			return fmt.Sprintf("Nothing to do: %s is being deleted and gets no node any more.", me)
		}
		return fmt.Sprintf("Nothing to do: %s has ended (%s) and needs no node any more.", me, s.pod.GetStatus().GetPhase())
	case schedulingv1.PodState_POD_STATE_FOREIGN:
		return fmt.Sprintf("Start a scheduler called %s, or make the pod anew with spec.schedulerName %s: this scheduler leaves %s alone.",
			s.pod.GetSpec().GetSchedulerName(), strings.Join(s.profiles, " or "), me)
	case schedulingv1.PodState_POD_STATE_GATED:
		return s.gated(me) + "."
	case schedulingv1.PodState_POD_STATE_IN_FLIGHT:
		if s.node != "" {
			return fmt.Sprintf("Wait: %s is being bound to node %s.", me, s.node)
		}
		return fmt.Sprintf("Wait: %s is being tried right now.", me)
	}
	switch {
	case s.failure != "":
		return fmt.Sprintf("Look into the error that ended the last attempt, which is repeated%s: %s.", s.when(), strings.TrimSuffix(s.failure, "."))
	case s.judged == nil:
		return fmt.Sprintf("Wait: %s has not been tried yet.", me)
	case s.group != nil && s.group.tried:
		return s.gang() + "."
	}
	return s.lone(me) + "."
}

// startsNot is why a pod does not run on its node, as far as its status tells; empty where nothing is wrong.
func startsNot(pod *corev1.Pod) string {
	for _, c := range pod.GetStatus().GetContainerStatuses() {
		w := c.GetState().GetWaiting()
		switch w.GetReason() {
		case "", "ContainerCreating", "PodInitializing":
			continue
		}
		why := fmt.Sprintf("its container %s waits (%s", c.GetName(), w.GetReason())
		if m := w.GetMessage(); m != "" {
			why += ": " + strings.TrimSuffix(firstLine(m), ".")
		}
		return why + ")"
	}
	return ""
}

// when is the time of the next attempt, with a space before it; empty where only an event brings it.
func (s *situation) when() string {
	if d := s.until.Sub(s.now); !s.until.IsZero() && d > 0 {
		return " in " + max(d.Round(time.Second), time.Second).String()
	}
	return ""
}

func (s *situation) gated(me string) string {
	var names []string
	for _, g := range s.pod.GetSpec().GetSchedulingGates() {
		names = append(names, g.GetName())
	}
	g := s.group
	switch {
	case len(names) > 0:
		return fmt.Sprintf("Remove the scheduling %s %s of %s: it is not tried while it has any", plural(len(names), "gate"), strings.Join(names, ", "), me)
	case g != nil && !g.exists:
		return fmt.Sprintf("Create PodGroup %s: %s is only tried with its group, and there is none of that name", g.name, me)
	case g != nil && g.waiting-g.held+g.scheduled < g.min:
		there := g.waiting - g.held + g.scheduled
		missing := g.min - there
		if g.held > 0 {
			missing = min(missing, g.held)
			return fmt.Sprintf("Remove the scheduling gates of %d more %s of pod group %s: it needs %d at once, and %d can be tried",
				missing, plural(missing, "pod"), g.name, g.min, there)
		}
		return fmt.Sprintf("Create %d more %s of pod group %s, or lower its minCount: it needs %d at once, and %d %s there",
			missing, plural(missing, "pod"), g.name, g.min, there, verb(there, "is", "are"))
	case s.gatePlugin == "DefaultPreemption":
		return fmt.Sprintf("Wait: room is being made for %s", me)
	}
	return fmt.Sprintf("Change what holds %s back: %s says %q", me, s.gatePlugin, s.gate)
}

// lone is about a pod that is tried by itself, or waits to be.
func (s *situation) lone(me string) string {
	j := s.judged
	switch {
	case len(j.fits) > 1:
		return s.waits(fmt.Sprintf("%s fits on %d of %d nodes now", me, len(j.fits), j.nodes))
	case len(j.fits) == 1:
		return s.waits(fmt.Sprintf("%s fits on node %s now", me, j.fits[0].GetNodeName()))
	case len(s.leaving) > 0:
		return fmt.Sprintf("Wait: %s %s on node %s to make room for %s", few(s.leaving), verb(len(s.leaving), "ends", "end"), s.nominated, me)
	case len(j.victims) > 0:
		return fmt.Sprintf("Wait: room for %s is to be made on node %s, where %s %s way", me, j.room, few(j.victims), verb(len(j.victims), "gives", "give"))
	case len(j.causes) == 0:
		return fmt.Sprintf("Add a node: there is none for %s", me)
	}
	return s.fix(&j.causes[0]) + ": " + j.findings()
}

// gang is about a pod of a group that is tried as a whole.
func (s *situation) gang() string {
	g, j := s.group, s.judged
	if g.missing() <= 0 {
		return s.waits(fmt.Sprintf("pod group %s fits now", g.name))
	}
	switch {
	case len(s.leaving) > 0:
		return fmt.Sprintf("Wait: %s %s to make room for pod group %s", few(s.leaving), verb(len(s.leaving), "ends", "end"), g.name)
	case len(j.victims) > 0:
		return fmt.Sprintf("Wait: room for pod group %s is to be made, for which %s %s way", g.name, few(j.victims), verb(len(j.victims), "gives", "give"))
	}
	needs := fmt.Sprintf("pod group %s needs %d at once", g.name, g.min)
	if g.scheduled > 0 {
		needs += fmt.Sprintf(", %d %s scheduled", g.scheduled, verb(g.scheduled, "is", "are"))
	}
	needs += fmt.Sprintf(" and %d %s", g.fit, verb(g.fit, "fits", "fit"))
	if g.domains > 0 {
		needs += fmt.Sprintf(" in %s, the best of %d %s", g.closest, g.domains, plural(g.domains, "domain"))
	}
	if len(j.causes) == 0 {
		return "Add nodes: " + needs
	}
	found := j.findings()
	if s.subject() != s.pod {
		found = "for pod " + framework.Key(s.subject()) + " " + found
	}
	c := &j.causes[0]
	if c.plugin != fitPlugin || j.shortage == nil || j.shortage.never {
		return s.fix(c) + ": " + needs + "; " + found
	}
	room := "Make room"
	if g.domains > 0 {
		room += " in " + g.closest
	}
	room += fmt.Sprintf(" for %d more %s", g.missing(), plural(g.missing(), "pod"))
	if asked := j.shortage.asked(); asked != "" {
		room += fmt.Sprintf(" of %s%s", asked, verb(g.missing(), "", " each"))
	}
	if enough := g.scheduled + g.fit; enough > 0 {
		room += fmt.Sprintf(" or lower minCount to %d", enough)
	}
	return room + ": " + needs + "; " + found
}

// subject is the pod that judged is about.
func (s *situation) subject() *corev1.Pod {
	if s.group != nil && s.group.left != nil {
		return s.group.left.Pod
	}
	return s.pod
}

func (s *situation) waits(what string) string {
	switch {
	case s.state == schedulingv1.PodState_POD_STATE_ACTIVE && s.ahead == 0:
		return fmt.Sprintf("Wait: %s and is next in line", what)
	case s.state == schedulingv1.PodState_POD_STATE_ACTIVE:
		return fmt.Sprintf("Wait: %s, with %d before it in line", what, s.ahead)
	case s.when() != "":
		return fmt.Sprintf("Wait: %s and is tried again%s", what, s.when())
	}
	return fmt.Sprintf("Wait: %s and is tried again soon", what)
}
