package explain

import (
	"fmt"
	"slices"
	"strings"

	"trireme.dev/client/selector"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// fix is what would help against a cause, in words that begin a sentence.
func (s *situation) fix(c *cause) string {
	reason, spec := strings.Join(c.reasons, ", "), s.subject().GetSpec()
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
		if len(c.nodes) > 0 {
			where = c.nodes[0]
		}
		return "Uncordon " + where
	case affinityPlugin:
		switch {
		case s.judged.unmatched != nil:
			return fmt.Sprintf("Correct %s, or label a node", s.judged.unmatched.field)
		case spec.GetAffinity().GetNodeAffinity() == nil:
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
		return affinityFix(reason, spec)
	case "NodeVolumeLimits":
		return "Add a node or take a pod with volumes off one"
	case "VolumeBinding", "VolumeZone", "VolumeRestrictions":
		return volumeFix(reason)
	case "QueueQuota":
		return queueFix(reason)
	case "TopologyPlacementGenerator":
		return "Label the nodes, or make the pod group anew with another spec.schedulingConstraints"
	case "":
		return "Change what the scheduler asks for"
	}
	return "Change what " + c.plugin + " asks for"
}

const hostname = "kubernetes.io/hostname"

func affinityFix(reason string, spec *corev1.PodSpec) string {
	switch {
	case strings.Contains(reason, "existing pods anti-affinity"):
		return "Add a node, or change the anti-affinity of the pods that keep it away"
	case strings.Contains(reason, "anti-affinity"):
		keys := termKeys(spec.GetAffinity().GetPodAntiAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution())
		if keys == hostname {
			return "Add a node, or change spec.affinity.podAntiAffinity"
		}
		return fmt.Sprintf("Add a node with another %s, or change spec.affinity.podAntiAffinity", keys)
	}
	terms := spec.GetAffinity().GetPodAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
	if len(terms) == 1 {
		if l, err := selector.FromLabelSelector(terms[0].GetLabelSelector()); err == nil {
			return fmt.Sprintf("Start a pod with the labels %s on a node with room for this one, or change spec.affinity.podAffinity", l)
		}
	}
	return "Start the pods that spec.affinity.podAffinity asks for, or change that"
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

// queueFix goes by what package quota says.
func queueFix(reason string) string {
	_, name, _ := strings.Cut(reason, "queue ")
	name, _, _ = strings.Cut(name, " ")
	switch {
	case strings.Contains(reason, "to appear"):
		return fmt.Sprintf("Create Queue %s or change the label trireme.dev/queue", name)
	case strings.Contains(reason, "is paused"):
		return fmt.Sprintf("Resume queue %s (spec.paused)", name)
	case strings.Contains(reason, "may use"):
		return fmt.Sprintf("Raise spec.limit of queue %s, or wait until pods of it end", name)
	case strings.Contains(reason, "is guaranteed"):
		return fmt.Sprintf("Wait until pods of queues that borrow end, or raise spec.guaranteed of queue %s", name)
	}
	return fmt.Sprintf("Look after queue %s", name)
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

// findings are the causes in words: 3 of 4 nodes have too few nvidia.com/gpu, 1 is cordoned.
func (j *judgement) findings() string { return findings(j.causes, j.nodes, j.unmatched) }

func findings(causes []cause, nodes int, u *unmatched) string {
	switch {
	case len(causes) == 0:
		return "there are no nodes"
	case causes[0].whole:
		return strings.Join(causes[0].reasons, ", ")
	case u != nil && len(u.there) > 0:
		return fmt.Sprintf("no node has %s, there %s %s", u.label(), verb(len(u.there), "is", "are"), few(u.there))
	case u != nil:
		return fmt.Sprintf("no node has a label %s", u.key)
	}
	out := finding(&causes[0], nodes)
	for i := range causes[1:] {
		c := &causes[i+1]
		out += fmt.Sprintf(", %d %s", c.count, complaint(c))
	}
	return out
}

// finding says how many of the nodes are out for a cause.
func finding(c *cause, nodes int) string {
	count := fmt.Sprintf("%d of %d nodes", c.count, nodes)
	switch {
	case nodes == 1:
		count = "the only node"
	case c.count == nodes && nodes == 2:
		count = "both nodes"
	case c.count == nodes:
		count = fmt.Sprintf("all %d nodes", nodes)
	}
	return count + " " + complaint(c)
}

// complaint is what is wrong with the nodes of a cause: a verb and its object.
func complaint(c *cause) string {
	have, are := verb(c.count, "has", "have"), verb(c.count, "is", "are")
	reason := strings.Join(c.reasons, ", ")
	switch c.plugin {
	case fitPlugin:
		return have + " " + lacking(c.reasons)
	case "TaintToleration":
		return fmt.Sprintf("%s the untolerated taint %s", have, taintOf(reason))
	case "NodeUnschedulable":
		return are + " cordoned"
	case affinityPlugin:
		return verb(c.count, "does", "do") + " not match its node selector or affinity"
	case "NodePorts":
		return have + " its host port in use"
	case namePlugin:
		return are + " not the one that it names"
	case "PodTopologySpread":
		if strings.Contains(reason, "missing required label") {
			return have + " not the label that it is to be spread by"
		}
		return have + " too many of its like in the domain already"
	case "InterPodAffinity":
		switch {
		case strings.Contains(reason, "existing pods anti-affinity"):
			return have + " pods near whose anti-affinity keeps it away"
		case strings.Contains(reason, "anti-affinity"):
			return have + " pods near that its anti-affinity keeps away from"
		}
		return have + " no pod near that its affinity asks for"
	}
	return fmt.Sprintf("%s out (%s)", are, strings.TrimPrefix(reason, "node(s) "))
}

// lacking is what nodes have too little of.
func lacking(reasons []string) string {
	if len(reasons) == 1 && reasons[0] == "Too many pods" {
		return "no room for another pod"
	}
	how := "too few"
	var out []string
	for _, r := range reasons {
		name, ok := strings.CutPrefix(r, "Insufficient ")
		if !ok {
			name = "pods" // Too many pods: of those that may be there
		}
		switch name {
		case "cpu", "memory", "ephemeral-storage":
			how = "too little"
		}
		out = append(out, name)
	}
	return how + " " + and(out)
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

func termKeys(terms []*corev1.PodAffinityTerm) string {
	var keys []string
	for _, t := range terms {
		if !slices.Contains(keys, t.GetTopologyKey()) {
			keys = append(keys, t.GetTopologyKey())
		}
	}
	return strings.Join(keys, " or ")
}
