package gangscheduling

import (
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

func pod(t *testing.T, name, scheduler string, priority int32) *framework.PodInfo {
	p, err := framework.NewPodInfo(&corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Uid: name},
		Spec:     &corev1.PodSpec{SchedulerName: proto.String(scheduler), Priority: proto.Int32(priority)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPreEnqueueGroup(t *testing.T) {
	group := func(minCount int32, class string, priority int32) *schedulingv1.PodGroup {
		g := &schedulingv1.PodGroup{Spec: &schedulingv1.PodGroupSpec{
			Priority:         proto.Int32(priority),
			SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{Gang: &schedulingv1.GangSchedulingPolicy{MinCount: minCount}},
		}}
		if class != "" {
			g.Spec.PriorityClassName = proto.String(class)
		}
		return g
	}
	two := []*framework.PodInfo{pod(t, "a", "s", 5), pod(t, "b", "s", 5)}
	for _, tc := range []struct {
		name string
		q    framework.Queued
		want string
	}{
		{"no object", framework.Queued{Pods: two}, "waiting for pod group ns/g to appear"},
		{"one missing", framework.Queued{Group: group(3, "", 0), Pods: two}, "waiting for 1 more pod of pod group ns/g, 2 of 3 seen"},
		{"some missing", framework.Queued{Group: group(6, "", 0), Pods: two, Scheduled: 1}, "waiting for 3 more pods of pod group ns/g, 3 of 6 seen"},
		{"all there", framework.Queued{Group: group(3, "", 0), Pods: two, Scheduled: 1}, ""},
		{"their own class", framework.Queued{Group: group(2, "high", 5), Pods: two}, ""},
		{"another class", framework.Queued{Group: group(2, "higher", 7), Pods: two}, "pod group ns/g has priority 7, its pod ns/a 5: they must be the same"},
		{
			"priorities", framework.Queued{Group: group(2, "", 0), Pods: []*framework.PodInfo{two[0], pod(t, "c", "s", 3)}},
			"pods of pod group ns/g have different priorities, 5 of pod ns/a and 3 of pod ns/c: they must have the same",
		},
		{
			"schedulers", framework.Queued{Group: group(3, "", 0), Pods: two, Strangers: []*framework.PodInfo{pod(t, "c", "other", 5)}},
			"pods of one group name different schedulers: s of pod ns/a, other of pod ns/c",
		},
		{"too many", framework.Queued{Group: group(5001, "", 0), Pods: two}, "pod group ns/g needs 5001 pods bound at once, 5000 are the most that can be"},
		{"not too many any more", framework.Queued{Group: group(5001, "", 0), Pods: two, Scheduled: 4999}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.q.GroupKey = framework.GroupKey{Namespace: "ns", Name: "g"}
			st := Plugin{}.PreEnqueueGroup(&tc.q)
			if got := st.Message(); got != tc.want || (tc.want != "") != (st.Code() == framework.UnschedulableAndUnresolvable) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
