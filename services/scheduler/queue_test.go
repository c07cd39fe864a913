package scheduler

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

func (c *cluster) queueObject(name string, spec *schedulingv1.QueueSpec) *schedulingv1.Queue {
	c.t.Helper()
	q, err := client.For[*schedulingv1.Queue](c.conn).Create(c.ctx, &schedulingv1.Queue{Metadata: &metav1.ObjectMeta{Name: name}, Spec: spec})
	if err != nil {
		c.t.Fatal(err)
	}
	return q
}

func inQueue(p *corev1.Pod, queue string) *corev1.Pod {
	p.Metadata.Labels = map[string]string{framework.LabelQueue: queue}
	return p
}

// TestQueue: pods wait for a queue to appear, for its limit, and for what others keep, and say so; its status counts them.
func TestQueue(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "8"})
	c.schedule(nil)
	c.create(inQueue(pod("a", gpus(2)), "team"))
	c.awaitCondition("a", "waiting for queue team to appear")
	q := c.queueObject("team", &schedulingv1.QueueSpec{Limit: map[string]string{"nvidia.com/gpu": "3"}})
	c.awaitBound("a")
	c.create(inQueue(pod("b", gpus(2)), "team"))
	c.awaitCondition("b", "queue team may use 3 of nvidia.com/gpu, 2 of it are used and 2 more asked for")
	await(c, "the queue's status", func(queues map[string]*schedulingv1.Queue) bool {
		s := queues["team"].GetStatus()
		return s.GetUsed()["nvidia.com/gpu"] == "2" && s.GetAdmitted() == 1 && s.GetPending() == 1 &&
			len(s.GetConditions()) == 1 && s.GetConditions()[0].GetStatus() == "True"
	})
	c.queueObject("other", &schedulingv1.QueueSpec{
		Guaranteed: map[string]string{"nvidia.com/gpu": "5"}, Lending: map[string]string{"nvidia.com/gpu": "0"},
	})
	queues := client.For[*schedulingv1.Queue](c.conn)
	change := func(change func(*schedulingv1.QueueSpec)) {
		t.Helper()
		fresh, err := queues.Get(c.ctx, "", q.GetMetadata().GetName())
		if err != nil {
			t.Fatal(err)
		}
		change(fresh.Spec)
		fresh.Metadata.ResourceVersion = ""
		if _, err := queues.Update(c.ctx, fresh); err != nil {
			t.Fatal(err)
		}
	}
	change(func(s *schedulingv1.QueueSpec) { s.Limit = nil })
	c.awaitCondition("b", "queue team is guaranteed 0 of nvidia.com/gpu and uses 2, 2 more are asked for; 6 are free, 5 are kept for other, borrowed by team")
	change(func(s *schedulingv1.QueueSpec) { s.Paused = proto.Bool(true) })
	c.awaitCondition("b", "queue team is paused")
	change(func(s *schedulingv1.QueueSpec) { s.Paused = nil })
	c.delete("a")
	c.awaitBound("b")
}

// TestGroupIsCounted in its status.
func TestGroupIsCounted(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	c.gang("g", 2)
	c.schedule(nil)
	c.create(pod("g-0", inGroup("g", 1)))
	count := func(known, scheduled int32) {
		t.Helper()
		await(c, "the group's figures", func(groups map[string]*schedulingv1.PodGroup) bool {
			s := groups["g"].GetStatus()
			return s.GetKnown() == known && s.GetScheduled() == scheduled && s.GetMinCount() == 2
		})
	}
	count(1, 0)
	c.create(pod("g-1", inGroup("g", 1)))
	count(2, 2)
}
