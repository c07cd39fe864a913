package explain

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

func TestSummary(t *testing.T) {
	const (
		active, backoff, pool     = schedulingv1.PodState_POD_STATE_ACTIVE, schedulingv1.PodState_POD_STATE_BACKOFF, schedulingv1.PodState_POD_STATE_UNSCHEDULABLE
		gated, flight             = schedulingv1.PodState_POD_STATE_GATED, schedulingv1.PodState_POD_STATE_IN_FLIGHT
		scheduled, ended, foreign = schedulingv1.PodState_POD_STATE_SCHEDULED, schedulingv1.PodState_POD_STATE_ENDED, schedulingv1.PodState_POD_STATE_FOREIGN
	)
	now := time.Unix(1000, 0)
	nodes := func(names ...string) (out []*schedulingv1.NodeVerdict) {
		for _, n := range names {
			out = append(out, &schedulingv1.NodeVerdict{NodeName: n})
		}
		return out
	}
	member := func(name string) *framework.PodInfo {
		return &framework.PodInfo{Pod: &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}}}
	}
	because := func(nodes int, causes ...cause) *judgement { return &judgement{nodes: nodes, causes: causes} }
	because1 := func(plugin, reason string, spec func(*corev1.PodSpec), change func(*judgement)) *situation {
		j := because(2, cause{plugin: plugin, reasons: []string{reason}, count: 2})
		if change != nil {
			change(j)
		}
		s := &situation{state: pool, judged: j, pod: &corev1.Pod{Spec: &corev1.PodSpec{}}}
		if spec != nil {
			spec(s.pod.Spec)
		}
		return s
	}
	whole := func(plugin, reason string) *situation {
		return &situation{state: pool, judged: because(2, cause{plugin: plugin, reasons: []string{reason}, count: 2, whole: true})}
	}
	gpus := cause{plugin: fitPlugin, reasons: []string{"Insufficient nvidia.com/gpu"}, count: 3, nodes: []string{"node-1", "node-2", "node-3"}}
	taint := cause{plugin: "TaintToleration", reasons: []string{"node(s) had untolerated taint {reserved: }"}, count: 1, nodes: []string{"node-4"}}
	for _, c := range []struct {
		name string
		s    situation
		want string
	}{
		{"room", situation{state: pool, judged: &judgement{nodes: 4, causes: []cause{gpus, taint}, shortage: &shortage{
			node: "node-3", lacks: []lack{{"nvidia.com/gpu", 2, 1, 4}},
		}}}, "Add a node with 2 free nvidia.com/gpu or free 1 on node-3: 3 of 4 nodes have too few nvidia.com/gpu, 1 has the untolerated taint {reserved}."},
		{"room of two kinds", situation{state: pool, judged: &judgement{
			nodes: 1, causes: []cause{{plugin: fitPlugin, reasons: []string{"Insufficient cpu", "Insufficient memory"}, count: 1}},
			shortage: &shortage{node: "n", lacks: []lack{{"cpu", 1500, 1000, 4000}, {"memory", 4 << 30, 1 << 30, 8 << 30}}},
		}}, "Add a node with 1500m free cpu and 4Gi free memory or free 500m cpu and 3Gi memory on n: the only node has too little cpu and memory."},
		{"more than any node has", situation{state: pool, judged: &judgement{
			nodes: 2, causes: []cause{{plugin: fitPlugin, reasons: []string{"Insufficient nvidia.com/gpu"}, count: 2}},
			shortage: &shortage{node: "n", never: true, lacks: []lack{{"nvidia.com/gpu", 16, 8, 8}}},
		}}, "Add a node with 16 nvidia.com/gpu or ask for at most 8 nvidia.com/gpu: both nodes have too few nvidia.com/gpu."},
		{"too many pods", situation{state: pool, judged: &judgement{
			nodes: 2, causes: []cause{{plugin: fitPlugin, reasons: []string{"Too many pods"}, count: 2}}, shortage: &shortage{node: "n", podsOnly: true},
		}}, "Add a node or take a pod off n: both nodes have no room for another pod."},
		{"taint", situation{state: pool, judged: because(1, taint)}, "Tolerate the taint {reserved} or remove it from node-4: the only node has the untolerated taint {reserved}."},
		{"cordoned", situation{state: pool, judged: because(1, cause{plugin: "NodeUnschedulable", reasons: []string{"node(s) were unschedulable"}, count: 1, nodes: []string{"n"}})},
			"Uncordon n: the only node is cordoned."},
		{"selector", *because1("NodeAffinity", "node(s) didn't match Pod's node affinity/selector", nil, func(j *judgement) {
			j.unmatched = &unmatched{field: "spec.nodeSelector", key: "disk", values: []string{"sdd"}, there: []string{"hdd", "ssd"}}
		}), "Correct spec.nodeSelector, or label a node: no node has disk=sdd, there are hdd and ssd."},
		{"selector of a label that there is not", *because1("NodeAffinity", "node(s) didn't match Pod's node affinity/selector", nil, func(j *judgement) {
			j.unmatched = &unmatched{field: "spec.affinity.nodeAffinity", key: "disk"}
		}), "Correct spec.affinity.nodeAffinity, or label a node: no node has a label disk."},
		{"selector of labels that exist apart", *because1("NodeAffinity", "node(s) didn't match Pod's node affinity/selector", nil, nil),
			"Label a node so that it has all of spec.nodeSelector at once, or change that: both nodes do not match its node selector or affinity."},
		{"affinity to nodes", *because1("NodeAffinity", "node(s) didn't match Pod's node affinity/selector", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		}, nil), "Label a node so that it matches spec.affinity.nodeAffinity, or change that: both nodes do not match its node selector or affinity."},
		{"anti-affinity", *because1("InterPodAffinity", "node(s) didn't match pod anti-affinity rules", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{TopologyKey: "zone"}},
			}}
		}, nil), "Add a node with another zone, or change spec.affinity.podAntiAffinity: both nodes have pods near that its anti-affinity keeps away from."},
		{"anti-affinity of others", *because1("InterPodAffinity", "node(s) didn't satisfy existing pods anti-affinity rules", nil, nil),
			"Add a node, or change the anti-affinity of the pods that keep it away: both nodes have pods near whose anti-affinity keeps it away."},
		{"affinity", *because1("InterPodAffinity", "node(s) didn't match pod affinity rules", nil, nil),
			"Start the pods that spec.affinity.podAffinity asks for, or change that: both nodes have no pod near that its affinity asks for."},
		{"spread", *because1("PodTopologySpread", "node(s) didn't match pod topology spread constraints", func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{{TopologyKey: "zone", WhenUnsatisfiable: "DoNotSchedule"}}
		}, nil), "Make room in those domains of zone that have fewest of the pods, or raise maxSkew: both nodes have too many of its like in the domain already."},
		{"ports", *because1("NodePorts", "node(s) didn't have free ports for the requested pod ports", func(s *corev1.PodSpec) {
			s.Containers = []*corev1.Container{{Ports: []*corev1.ContainerPort{{HostPort: proto.Int32(80)}}}}
		}, nil), "Free host port 80 on a node or do without: both nodes have its host port in use."},
		{"affinity of one term", *because1("InterPodAffinity", "node(s) didn't match pod affinity rules", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{
				{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cache"}}},
			}}}
		}, nil), "Start a pod with the labels app=cache on a node with room for this one, or change spec.affinity.podAffinity: " +
			"both nodes have no pod near that its affinity asks for."},
		{"claim", *whole("VolumeBinding", `persistentvolumeclaim "data" not found`),
			`Create PersistentVolumeClaim data: persistentvolumeclaim "data" not found.`},
		{"a queue's limit", *whole("QueueQuota", "queue vision may use 2 of nvidia.com/gpu, 2 of it are used and 1 more asked for"),
			"Raise spec.limit of queue vision, or wait until pods of it end: queue vision may use 2 of nvidia.com/gpu, 2 of it are used and 1 more asked for."},
		{"no queue", *whole("QueueQuota", "waiting for queue vison to appear"),
			"Create Queue vison or change the label trireme.dev/queue: waiting for queue vison to appear."},
		{"a paused queue", *whole("QueueQuota", "queue vision is paused"), "Resume queue vision (spec.paused): queue vision is paused."},
		{"what others borrow", *whole("QueueQuota", "queue vision is guaranteed 8 of cpu and uses 2, 4 more are asked for; 1 are free, 2 are kept for nlp"),
			"Wait until pods of queues that borrow end, or raise spec.guaranteed of queue vision: " +
				"queue vision is guaranteed 8 of cpu and uses 2, 4 more are asked for; 1 are free, 2 are kept for nlp."},
		{"a gang's topology", situation{state: pool, group: &group{name: "default/g", exists: true, min: 4, waiting: 4, tried: true}, judged: &judgement{
			nodes: 2, causes: []cause{{plugin: "TopologyPlacementGenerator", reasons: []string{"no node has the label rak"}, count: 2, whole: true}},
		}}, "Label the nodes, or make the pod group anew with another spec.schedulingConstraints: " +
			"pod group default/g needs 4 at once and 0 fit; no node has the label rak."},
		{"a third party's", *because1("Licences", "no licence left", nil, nil), "Change what Licences asks for: both nodes are out (no licence left)."},
		{"no nodes", situation{state: pool, judged: because(0)}, "Add a node: there is none for pod default/p."},
		{"preemption", situation{state: pool, judged: &judgement{nodes: 3, room: "n", victims: []string{"a/x", "a/y"}, causes: []cause{gpus}}},
			"Wait: room for pod default/p is to be made on node n, where a/x and a/y give way."},
		{"victims on their way out", situation{state: pool, nominated: "n", leaving: []string{"a/x"}, judged: &judgement{nodes: 3, causes: []cause{gpus}}},
			"Wait: a/x ends on node n to make room for pod default/p."},
		{"next in line", situation{state: active, judged: &judgement{nodes: 3, fits: nodes("n")}}, "Wait: pod default/p fits on node n now and is next in line."},
		{"in line", situation{state: active, ahead: 7, judged: &judgement{nodes: 3, fits: nodes("n", "m")}},
			"Wait: pod default/p fits on 2 of 3 nodes now, with 7 before it in line."},
		{"backoff", situation{state: backoff, until: now.Add(4 * time.Second), judged: &judgement{nodes: 3, fits: nodes("n")}},
			"Wait: pod default/p fits on node n now and is tried again in 4s."},
		{"error", situation{state: backoff, until: now.Add(4 * time.Second), failure: "bind: conflict"},
			"Look into the error that ended the last attempt, which is repeated in 4s: bind: conflict."},
		{"gates", situation{state: gated, pod: &corev1.Pod{Spec: &corev1.PodSpec{SchedulingGates: []*corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}}}},
			"Remove the scheduling gates a, b of pod default/p: it is not tried while it has any."},
		{"quota", situation{state: gated, gatePlugin: "Queues", gate: "queue team-a has used 8 of 8 nvidia.com/gpu"},
			`Change what holds pod default/p back: Queues says "queue team-a has used 8 of 8 nvidia.com/gpu".`},
		{"making room", situation{state: gated, gatePlugin: "DefaultPreemption", gate: "waiting"}, "Wait: room is being made for pod default/p."},
		{"no group", situation{state: gated, group: &group{name: "default/g"}},
			"Create PodGroup default/g: pod default/p is only tried with its group, and there is none of that name."},
		{"quorum", situation{state: gated, group: &group{name: "default/g", exists: true, min: 4, waiting: 2, scheduled: 1}},
			"Create 1 more pod of pod group default/g, or lower its minCount: it needs 4 at once, and 3 are there."},
		{"quorum but for gates", situation{state: gated, group: &group{name: "default/g", exists: true, min: 4, waiting: 4, held: 3}},
			"Remove the scheduling gates of 3 more pods of pod group default/g: it needs 4 at once, and 1 can be tried."},
		{"gang", situation{state: pool, group: &group{
			name: "default/g", exists: true, min: 5, scheduled: 1, waiting: 4, tried: true, fit: 2, left: member("g-3"),
		}, judged: &judgement{
			nodes: 3, causes: []cause{gpus}, shortage: &shortage{node: "node-3", lacks: []lack{{"nvidia.com/gpu", 2, 1, 4}}},
		}}, "Make room for 2 more pods of 2 nvidia.com/gpu each or lower minCount to 3: " +
			"pod group default/g needs 5 at once, 1 is scheduled and 2 fit; for pod default/g-3 all 3 nodes have too few nvidia.com/gpu."},
		{"gang in a rack", situation{state: pool, group: &group{
			name: "default/g", exists: true, min: 4, waiting: 4, tried: true, fit: 3, domains: 5, closest: "rack=r3", left: member("g-3"),
		}, judged: &judgement{
			nodes: 3, causes: []cause{gpus}, shortage: &shortage{node: "node-3", lacks: []lack{{"nvidia.com/gpu", 2, 1, 4}}},
		}}, "Make room in rack=r3 for 1 more pod of 2 nvidia.com/gpu or lower minCount to 3: pod group default/g needs 4 at once and 3 fit in rack=r3, " +
			"the best of 5 domains; for pod default/g-3 all 3 nodes have too few nvidia.com/gpu."},
		{"gang too large for any node", situation{state: pool, group: &group{
			name: "default/g", exists: true, min: 4, waiting: 4, tried: true, left: member("g-0"),
		}, judged: &judgement{
			nodes: 3, causes: []cause{gpus}, shortage: &shortage{node: "node-3", never: true, lacks: []lack{{"nvidia.com/gpu", 16, 8, 8}}},
		}}, "Add a node with 16 nvidia.com/gpu or ask for at most 8 nvidia.com/gpu: " +
			"pod group default/g needs 4 at once and 0 fit; for pod default/g-0 all 3 nodes have too few nvidia.com/gpu."},
		{"gang for which others give way", situation{state: pool, group: &group{name: "default/g", exists: true, min: 4, waiting: 4, tried: true, fit: 3}, judged: &judgement{
			nodes: 3, causes: []cause{gpus}, victims: []string{"a/1", "a/2", "a/3", "a/4", "a/5"},
		}}, "Wait: room for pod group default/g is to be made, for which a/1, a/2, a/3 and 2 more give way."},
		{"gang whose victims end", situation{state: pool, group: &group{name: "default/g", exists: true, min: 4, waiting: 4, tried: true, fit: 3}, leaving: []string{"a/1"}, judged: &judgement{
			nodes: 3, causes: []cause{gpus},
		}}, "Wait: a/1 ends to make room for pod group default/g."},
		{"gang that fits now", situation{state: pool, group: &group{name: "default/g", exists: true, min: 4, waiting: 4, tried: true, fit: 4}, judged: because(3)},
			"Wait: pod group default/g fits now and is tried again soon."},
		{"being tried", situation{state: flight}, "Wait: pod default/p is being tried right now."},
		{"being bound", situation{state: flight, node: "n"}, "Wait: pod default/p is being bound to node n."},
		{"scheduled", situation{state: scheduled, node: "n"}, "Nothing to do here: pod default/p is on node n."},
		{"scheduled, but it does not start", situation{state: scheduled, node: "n", pod: &corev1.Pod{Status: &corev1.PodStatus{ContainerStatuses: []*corev1.ContainerStatus{
			{Name: "main", State: &corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}},
		}}}}, "Look on node n, where pod default/p is: its container main waits (ImagePullBackOff: no such image)."},
		{"ended", situation{state: ended, pod: &corev1.Pod{Status: &corev1.PodStatus{Phase: "Failed"}}},
			"Nothing to do: pod default/p has ended (Failed) and needs no node any more."},
		{"being deleted", situation{state: ended, pod: &corev1.Pod{Metadata: &metav1.ObjectMeta{DeletionTimestamp: timestamppb.Now()}}},
			"Nothing to do: pod default/p is being deleted and gets no node any more."},
		{"another scheduler's", situation{state: foreign, profiles: []string{"default-scheduler"}, pod: &corev1.Pod{Spec: &corev1.PodSpec{SchedulerName: proto.String("mine")}}},
			"Start a scheduler called mine, or make the pod anew with spec.schedulerName default-scheduler: this scheduler leaves pod default/p alone."},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.s.pod == nil {
				c.s.pod = &corev1.Pod{}
			}
			if c.s.pod.Metadata == nil {
				c.s.pod.Metadata = &metav1.ObjectMeta{}
			}
			c.s.pod.Metadata.Namespace, c.s.pod.Metadata.Name = "default", "p"
			c.s.now = now
			if got := summarize(&c.s); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}
