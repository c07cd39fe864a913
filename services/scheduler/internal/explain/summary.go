package explain

import (
	"fmt"
	"slices"
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
	group   *group
	// judged is what would come of it now; nil where nobody asked. Of a group, it is of the first member that fits nowhere.
	judged *judged
}

// group is the pod's group.
type group struct {
	name                               string
	exists                             bool
	min, waiting, scheduled, held, fit int
	// example is the member that fits nowhere; empty where it is the pod itself.
	example string
	// domains were tried; 0 where the group may be anywhere.
	domains int
}

// judged is the part of a judgement that the summary needs.
type judged struct {
	nodes    int
	fits     []string // the best first
	causes   []cause
	shortage *shortage
	// unmatched are the labels of spec.nodeSelector that no node has.
	unmatched []string
	// victims would give way on the node called room.
	victims []string
	room    string
}

// summarize says in one sentence what would help and why, or that nothing has to be done.
func summarize(s *situation) string {
	me := "pod " + framework.Key(s.pod)
	switch s.state {
	case schedulingv1.PodState_POD_STATE_SCHEDULED:
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
	if s.failure != "" {
		return fmt.Sprintf("Look into the error that ended the last attempt, which is repeated%s: %s.", s.when(), strings.TrimSuffix(s.failure, "."))
	}
	if s.judged == nil {
		return fmt.Sprintf("Wait: %s has not been tried yet.", me)
	}
	return s.open(me) + "."
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
	case g != nil && g.waiting+g.scheduled < g.min+g.held && g.waiting-g.held+g.scheduled < g.min:
		there := g.waiting - g.held + g.scheduled
		missing := g.min - there
		if g.held > 0 {
			return fmt.Sprintf("Remove the scheduling gates of %d more %s of pod group %s: it needs %d at once, and %d can be tried",
				min(missing, g.held), plural(min(missing, g.held), "pod"), g.name, g.min, there)
		}
		return fmt.Sprintf("Create %d more %s of pod group %s: it needs %d at once, and %d %s there",
			missing, plural(missing, "pod"), g.name, g.min, there, isAre(there))
	case s.gatePlugin == "DefaultPreemption":
		return fmt.Sprintf("Wait: room is being made for %s", me)
	}
	return fmt.Sprintf("Change what holds %s back: %s says %q", me, s.gatePlugin, s.gate)
}

// open is about a pod that is tried, or waits to be.
func (s *situation) open(me string) string {
	j, who := s.judged, me
	if s.group != nil && s.group.fit >= 0 {
		need := s.group.min - s.group.scheduled
		if s.group.fit >= need {
			return s.waits(fmt.Sprintf("pod group %s fits now", s.group.name))
		}
		who = s.groupPart(need)
	} else if len(j.fits) > 0 {
		on := "on node " + j.fits[0]
		if len(j.fits) > 1 {
			on = fmt.Sprintf("on %d of %d nodes", len(j.fits), j.nodes)
		}
		return s.waits(fmt.Sprintf("%s fits %s now", me, on))
	}
	if j.nodes == 0 {
		return fmt.Sprintf("Add a node: there is none for %s", me)
	}
	if len(j.victims) > 0 && s.group != nil && s.group.fit >= 0 {
		return fmt.Sprintf("Wait: room for pod group %s is to be made, to which %s %s way", s.group.name, few(j.victims), gives(len(j.victims)))
	}
	if len(j.victims) > 0 {
		return fmt.Sprintf("Wait: room for %s is to be made on node %s, where %s %s way", me, j.room, few(j.victims), gives(len(j.victims)))
	}
	if len(j.causes) == 0 {
		return s.waits("nothing speaks against " + me)
	}
	found := finding(&j.causes[0], j.nodes, true)
	for i := range j.causes[1:] {
		found += ", " + finding(&j.causes[i+1], j.nodes, false)
	}
	if who != me {
		found = who + ": " + found
	}
	return s.fix(&j.causes[0]) + ": " + found
}

// groupPart says how far the group comes.
func (s *situation) groupPart(need int) string {
	text := fmt.Sprintf("pod group %s needs %d at once and %d fit", s.group.name, need, s.group.fit)
	if s.group.domains > 0 {
		text += fmt.Sprintf(" in the best of %d %s", s.group.domains, plural(s.group.domains, "domain"))
	}
	if s.group.example != "" {
		text += "; for pod " + s.group.example
	}
	return text
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

// fix is what would help against a cause.
func (s *situation) fix(c *cause) string {
	reason, spec := strings.Join(c.reasons, ", "), s.pod.GetSpec()
	where := "a node"
	if len(c.nodes) == 1 && c.count == 1 {
		where = c.nodes[0]
	}
	switch c.plugin {
	case fitPlugin:
		if s.judged.shortage != nil {
			return s.judged.shortage.fix()
		}
	case "TaintToleration":
		return fmt.Sprintf("Tolerate the taint %s or remove it from %s", taintOf(reason), where)
	case "NodeUnschedulable":
		if len(c.nodes) == 0 {
			return "Uncordon a node"
		}
		return "Uncordon " + c.nodes[0]
	case "NodeAffinity":
		if labels := s.judged.unmatched; len(labels) > 0 {
			return fmt.Sprintf("Label a node %s or change spec.nodeSelector", strings.Join(labels, " "))
		}
		if spec.GetAffinity().GetNodeAffinity() == nil {
			return "Label a node so that it has all of spec.nodeSelector at once, or change that"
		}
		return "Label a node so that it matches spec.affinity.nodeAffinity, or change that"
	case "NodePorts":
		return fmt.Sprintf("Free %s on %s or do without", hostPorts(spec), where)
	case "PodTopologySpread":
		if strings.Contains(reason, "missing required label") {
			return fmt.Sprintf("Label the nodes with %s or change spec.topologySpreadConstraints", spreadKeys(spec))
		}
		return fmt.Sprintf("Make room in those domains of %s that have fewest of the pods, or raise maxSkew", spreadKeys(spec))
	case "InterPodAffinity":
		switch {
		case strings.Contains(reason, "existing pods anti-affinity"):
			return "Add a node, or change the anti-affinity of the pods that keep it away"
		case strings.Contains(reason, "anti-affinity"):
			return fmt.Sprintf("Add a node with another %s, or change spec.affinity.podAntiAffinity", antiKeys(spec))
		}
		return "Start a pod that spec.affinity.podAffinity asks for, or change that"
	case "NodeVolumeLimits":
		return "Add a node or take a pod with volumes off one"
	case "VolumeBinding", "VolumeZone", "VolumeRestrictions":
		return volumeFix(reason)
	}
	return "Change what " + pluginName(c.plugin) + " asks for"
}

func pluginName(plugin string) string {
	if plugin == "" {
		return "the scheduler"
	}
	return plugin
}

func volumeFix(reason string) string {
	_, name, found := strings.Cut(reason, "persistentvolumeclaim \"")
	name, _, _ = strings.Cut(name, "\"")
	switch {
	case found && strings.Contains(reason, "not found"):
		return fmt.Sprintf("Create PersistentVolumeClaim %s", name)
	case strings.Contains(reason, "unbound immediate"):
		return "Create a PersistentVolume that its claims can be bound to, or a provisioner that makes one"
	case strings.Contains(reason, "available persistent volumes"):
		return "Create a PersistentVolume that its claim can be bound to"
	case strings.Contains(reason, "ReadWriteOncePod"):
		return "End the pod that uses the same claim, or give this one its own"
	case strings.Contains(reason, "node affinity"), strings.Contains(reason, "volume zone"):
		return "Make room where its volume is"
	}
	return "Look after its volumes"
}

// fix says what has to be added or freed.
func (s *shortage) fix() string {
	if s.podsOnly {
		return fmt.Sprintf("Add a node or take a pod off %s", s.node)
	}
	var need, missing, most []string
	for _, l := range s.lacks {
		need = append(need, figure(l.resource, l.need)+" free "+l.resource)
		missing = append(missing, figure(l.resource, l.missing()))
		if l.need > l.total {
			most = append(most, amount(l.resource, l.total))
		}
	}
	if s.never {
		for i, l := range s.lacks {
			need[i] = amount(l.resource, l.need)
		}
		return fmt.Sprintf("Add a node with %s or ask for at most %s", and(need), and(most))
	}
	if len(s.lacks) > 1 {
		for i, l := range s.lacks {
			missing[i] = amount(l.resource, l.missing())
		}
	}
	return fmt.Sprintf("Add a node with %s or free %s on %s", and(need), and(missing), s.node)
}

// finding says how many nodes are out for a cause: 3 of 4 nodes have too few (insufficient nvidia.com/gpu).
func finding(c *cause, nodes int, first bool) string {
	count := fmt.Sprint(c.count)
	if first {
		switch {
		case nodes == 1:
			count = "the only node"
		case c.count == nodes && nodes == 2:
			count = "both nodes"
		case c.count == nodes:
			count = fmt.Sprintf("all %d nodes", nodes)
		default:
			count = fmt.Sprintf("%d of %d nodes", c.count, nodes)
		}
	}
	return count + " " + complaint(c, c.count == 1)
}

// complaint is what is wrong with the nodes of a cause: a verb and its object, for one or for several.
func complaint(c *cause, one bool) string {
	have, are, do, they := "have", "are", "do", "they"
	if one {
		have, are, do, they = "has", "is", "does", "it"
	}
	reason := strings.Join(c.reasons, ", ")
	switch c.plugin {
	case fitPlugin:
		if reason == "Too many pods" {
			return have + " as many pods as " + they + " may have"
		}
		how := "too few"
		if strings.Contains(reason, "cpu") || strings.Contains(reason, "memory") || strings.Contains(reason, "storage") {
			how = "too little"
		}
		var lacking []string
		for _, r := range c.reasons {
			if name, ok := strings.CutPrefix(r, "Insufficient "); ok {
				lacking = append(lacking, name)
			}
		}
		return fmt.Sprintf("%s %s (insufficient %s)", have, how, and(lacking))
	case "TaintToleration":
		return fmt.Sprintf("%s the untolerated taint %s", have, taintOf(reason))
	case "NodeUnschedulable":
		return are + " cordoned"
	case "NodeAffinity":
		return do + " not match its node selector or affinity"
	case "NodePorts":
		return have + " its host port in use"
	case "NodeName":
		return are + " not the one that it names"
	}
	if strings.HasPrefix(reason, "node(s) ") {
		return "say: " + strings.TrimPrefix(reason, "node(s) ")
	}
	return fmt.Sprintf("%s out (%s)", are, reason)
}

// taintOf is the taint in a rejection, without a colon where it has no value.
func taintOf(reason string) string {
	_, taint, _ := strings.Cut(reason, "{")
	taint, _, _ = strings.Cut(taint, "}")
	return "{" + strings.TrimSuffix(strings.TrimSpace(taint), ":") + "}"
}

func hostPorts(spec *corev1.PodSpec) string {
	var ports []string
	for _, c := range spec.GetContainers() {
		for _, p := range c.GetPorts() {
			if p.GetHostPort() != 0 {
				ports = append(ports, fmt.Sprint(p.GetHostPort()))
			}
		}
	}
	return fmt.Sprintf("host %s %s", plural(len(ports), "port"), strings.Join(ports, ", "))
}

func spreadKeys(spec *corev1.PodSpec) string {
	var keys []string
	for _, c := range spec.GetTopologySpreadConstraints() {
		if c.GetWhenUnsatisfiable() == "DoNotSchedule" && !slices.Contains(keys, c.GetTopologyKey()) {
			keys = append(keys, c.GetTopologyKey())
		}
	}
	return strings.Join(keys, ", ")
}

func antiKeys(spec *corev1.PodSpec) string {
	var keys []string
	for _, t := range spec.GetAffinity().GetPodAntiAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution() {
		if !slices.Contains(keys, t.GetTopologyKey()) {
			keys = append(keys, t.GetTopologyKey())
		}
	}
	return strings.Join(keys, " or ")
}

// few names at most three.
func few(names []string) string {
	if len(names) > maxCauseNodes {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxCauseNodes], ", "), len(names)-maxCauseNodes)
	}
	return and(names)
}

func and(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func gives(n int) string {
	if n == 1 {
		return "gives"
	}
	return "give"
}
