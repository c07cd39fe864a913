package cli

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func TestPlanDrain(t *testing.T) {
	now := time.Now()
	pod := func(name, owner string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: &corev1.PodSpec{}, Status: &corev1.PodStatus{}}
		if owner != "" {
			p.Metadata.OwnerReferences = []*metav1.OwnerReference{{Kind: owner, Controller: proto.Bool(true)}}
		}
		if change != nil {
			change(p)
		}
		return p
	}
	emptyDir := func(p *corev1.Pod) {
		p.Spec.Volumes = []*corev1.Volume{{Name: "v", EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	}
	ended := func(p *corev1.Pod) { emptyDir(p); p.Status.Phase = "Succeeded" }
	mirror := func(p *corev1.Pod) { p.Metadata.Annotations = map[string]string{mirrorAnnotation: "x"} }
	going := func(p *corev1.Pod) { p.Metadata.DeletionTimestamp = timestamppb.New(now.Add(-time.Minute)) }
	held := func(p *corev1.Pod) { p.Metadata.OwnerReferences[0].Controller = nil }

	all := drainRules{force: true, ignoreDaemonSets: true, deleteEmptyDir: true}
	tests := []struct {
		name              string
		pods              []*corev1.Pod
		rules             drainRules
		evict             string
		refused, warnings []string
	}{
		{"controlled", []*corev1.Pod{pod("b", "ReplicaSet", nil), pod("a", "ReplicaSet", nil)}, drainRules{}, "ns/a ns/b", nil, nil},
		{"nobody's", []*corev1.Pod{pod("a", "", nil), pod("b", "ReplicaSet", held)}, drainRules{}, "ns/a ns/b", []string{"--force deletes them for good): ns/a, ns/b"}, nil},
		{"nobody's, by force", []*corev1.Pod{pod("a", "", nil)}, all, "ns/a", nil, []string{"deleted for good, since no controller makes them anew: ns/a"}},
		{"local data", []*corev1.Pod{pod("a", "ReplicaSet", emptyDir)}, drainRules{force: true}, "ns/a", []string{"--delete-emptydir-data allows it): ns/a"}, nil},
		{"local data, allowed", []*corev1.Pod{pod("a", "ReplicaSet", emptyDir)}, all, "ns/a", nil, []string{"emptyDir volumes are lost: ns/a"}},
		{"a daemon", []*corev1.Pod{pod("a", "DaemonSet", nil)}, drainRules{force: true}, "", []string{"--ignore-daemonsets leaves them where they are): ns/a"}, nil},
		{"a daemon, ignored", []*corev1.Pod{pod("a", "DaemonSet", nil), pod("b", "ReplicaSet", nil)}, all, "ns/b", nil, []string{"left where they are, since they belong to DaemonSets: ns/a"}},
		{"ended", []*corev1.Pod{pod("a", "", ended)}, drainRules{}, "ns/a", nil, nil},
		{"mirror", []*corev1.Pod{pod("a", "", mirror)}, drainRules{}, "", nil, nil},
		{"going", []*corev1.Pod{pod("a", "ReplicaSet", going)}, drainRules{}, "ns/a", nil, nil},
		{"going for too long", []*corev1.Pod{pod("a", "ReplicaSet", going)}, drainRules{skipDeletedFor: time.Second}, "", nil, nil},
		{"going, but not for that long", []*corev1.Pod{pod("a", "ReplicaSet", going)}, drainRules{skipDeletedFor: time.Hour}, "ns/a", nil, nil},
		{
			"all reasons at once", []*corev1.Pod{pod("a", "", emptyDir), pod("b", "DaemonSet", emptyDir)}, drainRules{}, "ns/a",
			[]string{"(--ignore-daemonsets leaves them where they are): ns/b", "(--delete-emptydir-data allows it): ns/a, ns/b", "(--force deletes them for good): ns/a"}, nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan := planDrain(tt.pods, tt.rules, now)
			var keys []string
			for _, p := range plan.evict {
				keys = append(keys, podKey(p))
			}
			if got := strings.Join(keys, " "); got != tt.evict {
				t.Errorf("evicts %q, want %q", got, tt.evict)
			}
			for _, lines := range []struct{ got, want []string }{{plan.refused, tt.refused}, {plan.warnings, tt.warnings}} {
				if len(lines.got) != len(lines.want) {
					t.Errorf("says %q, want %q", lines.got, lines.want)
					continue
				}
				for i := range lines.got {
					if !strings.Contains(lines.got[i], lines.want[i]) {
						t.Errorf("says %q, want %q", lines.got[i], lines.want[i])
					}
				}
			}
		})
	}
}
