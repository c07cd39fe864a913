package deployment

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func testDeployment(replicas int32, surge, unavailable any) *appsv1.Deployment {
	value := func(v any) *structpb.Value {
		out, err := structpb.NewValue(v)
		if err != nil {
			panic(err)
		}
		return out
	}
	return &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Name: "web", Namespace: "default", Uid: "d", Generation: 1},
		Spec: &appsv1.DeploymentSpec{
			Replicas:                proto.Int32(replicas),
			Selector:                &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template:                &corev1.PodTemplateSpec{Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: &corev1.PodSpec{}},
			RevisionHistoryLimit:    proto.Int32(10),
			ProgressDeadlineSeconds: proto.Int32(600),
			Strategy: &appsv1.DeploymentStrategy{Type: proto.String("RollingUpdate"), RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: value(surge), MaxUnavailable: value(unavailable),
			}},
		},
	}
}

func image(d *appsv1.Deployment, image string) {
	d.Spec.Template.Spec.Containers = []*corev1.Container{{Name: "c", Image: image}}
	d.Metadata.Generation++
}

// world carries plans out in memory, with a ReplicaSet controller that makes pods available one at a time.
type world struct {
	d       *appsv1.Deployment
	sets    []*appsv1.ReplicaSet
	oldPods int
	now     time.Time
}

func (w *world) step(t interface{ Fatalf(string, ...any) }) Plan {
	p, err := Compute(Input{Deployment: w.d, Sets: w.sets, OldPods: w.oldPods, Now: w.now})
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	if p.Create != nil {
		rs := proto.CloneOf(p.Create)
		rs.Metadata.Uid = rs.GetMetadata().GetName()
		rs.Metadata.CreationTimestamp = timestamppb.New(w.now.Add(time.Duration(len(w.sets)) * time.Second))
		rs.Status = &appsv1.ReplicaSetStatus{}
		w.sets = append(w.sets, rs)
	}
	for _, u := range p.Update {
		for i, rs := range w.sets {
			if rs.GetMetadata().GetName() == u.GetMetadata().GetName() {
				w.sets[i] = proto.CloneOf(u)
			}
		}
	}
	for _, gone := range p.Delete {
		for i, rs := range w.sets {
			if rs.GetMetadata().GetName() == gone.GetMetadata().GetName() {
				w.sets = append(w.sets[:i], w.sets[i+1:]...)
				break
			}
		}
	}
	w.d.Status = p.Status
	w.d.Metadata.Annotations = map[string]string{revisionAnnotation: p.Revision}
	return p
}

// follow lets one set come nearer to its size by one pod, or says that all have theirs.
func (w *world) follow() bool {
	for _, rs := range w.sets {
		s, want := rs.Status, rs.GetSpec().GetReplicas()
		s.ObservedGeneration = rs.GetMetadata().GetGeneration()
		switch {
		case s.GetReplicas() > want:
			s.Replicas--
			s.ReadyReplicas = min(s.ReadyReplicas, s.Replicas)
			s.AvailableReplicas = min(s.AvailableReplicas, s.Replicas)
			return true
		case s.GetReplicas() < want:
			s.Replicas++
			return true
		case s.GetAvailableReplicas() < want:
			s.ReadyReplicas++
			s.AvailableReplicas++
			return true
		}
	}
	return false
}

func (w *world) count() (total, available int32) {
	for _, rs := range w.sets {
		total += rs.GetSpec().GetReplicas()
		available += min(rs.GetStatus().GetAvailableReplicas(), rs.GetSpec().GetReplicas())
	}
	return total, available
}

// settle steps until nothing changes, and checks invariant after each step.
func (w *world) settle(t interface{ Fatalf(string, ...any) }, invariant func()) {
	quiet := 0
	for range 2000 {
		p := w.step(t)
		if invariant != nil {
			invariant()
		}
		changed := p.Create != nil || len(p.Update)+len(p.Delete) > 0
		if !w.follow() && !changed {
			if quiet++; quiet == 3 {
				return
			}
		} else {
			quiet = 0
		}
	}
	t.Fatalf("does not settle: %v", w.sets)
}

func (w *world) sizes() string {
	out := ""
	for _, rs := range w.sets {
		out += fmt.Sprintf("%d/%d ", rs.GetStatus().GetAvailableReplicas(), rs.GetSpec().GetReplicas())
	}
	return out
}

func TestSurgeRoundsUpAndUnavailableDown(t *testing.T) {
	for _, c := range []struct {
		replicas                   int32
		surge, unavailable         any
		wantSurge, wantUnavailable int32
	}{
		{10, "25%", "25%", 3, 2},
		{1, "25%", "25%", 1, 0},
		{3, "50%", "50%", 2, 1},
		{4, 0, 0, 0, 1},
		{4, "0%", "0%", 0, 1},
		{2, 5, 5, 5, 2},
		{0, "25%", "25%", 0, 0},
	} {
		r, err := rolloutOf(testDeployment(c.replicas, c.surge, c.unavailable))
		if err != nil || r.surge != c.wantSurge || r.unavailable != c.wantUnavailable {
			t.Errorf("%+v: surge %d, unavailable %d, %v", c, r.surge, r.unavailable, err)
		}
	}
	for _, bad := range []any{"x%", "25", true} {
		if _, err := rolloutOf(testDeployment(4, bad, 0)); err == nil {
			t.Errorf("maxSurge %v accepted", bad)
		}
	}
}

func TestARolloutEndsAtTheNewTemplateAndRollsBack(t *testing.T) {
	w := &world{d: testDeployment(4, 1, 1), now: now}
	image(w.d, "v1")
	w.settle(t, nil)
	image(w.d, "v2")
	w.settle(t, nil)
	if got := w.sizes(); got != "0/0 4/4 " {
		t.Errorf("sizes %s, want the new set alone", got)
	}
	if got := w.d.GetMetadata().GetAnnotations()[revisionAnnotation]; got != "2" {
		t.Errorf("revision %s, want 2", got)
	}
	image(w.d, "v1")
	w.settle(t, nil)
	if got := w.sizes(); got != "4/4 0/0 " {
		t.Errorf("sizes %s, want the first set used again", got)
	}
	if got := w.d.GetMetadata().GetAnnotations()[revisionAnnotation]; got != "3" {
		t.Errorf("revision %s, want 3", got)
	}
	if s := w.d.GetStatus(); s.GetUpdatedReplicas() != 4 || s.GetAvailableReplicas() != 4 || s.GetUnavailableReplicas() != 0 {
		t.Errorf("status %v", s)
	}
	c := conditions{list: w.d.GetStatus().GetConditions()}
	if p := c.get(conditionProgressing); p.GetReason() != "NewReplicaSetAvailable" {
		t.Errorf("Progressing %v", p)
	}
}

func TestRolloutsKeepWithinSurgeAndAvailability(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		surge := rapid.Int32Range(0, 4).Draw(t, "surge")
		unavailable := rapid.Int32Range(0, 4).Draw(t, "unavailable")
		replicas := rapid.Int32Range(1, 12).Draw(t, "replicas")
		w := &world{d: testDeployment(replicas, surge, unavailable), now: now}
		r, err := rolloutOf(w.d)
		if err != nil {
			t.Fatal(err)
		}
		image(w.d, "v0")
		w.settle(t, nil)
		within := func() {
			total, available := w.count()
			if total > r.desired+r.surge {
				t.Fatalf("%d replicas, want at most %d: %s", total, r.desired+r.surge, w.sizes())
			}
			if available < r.desired-r.unavailable {
				t.Fatalf("%d available, want at least %d: %s", available, r.desired-r.unavailable, w.sizes())
			}
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "rollouts") {
			image(w.d, "v"+strconv.Itoa(i+1))
			// The next rollout may begin in the midst of this one.
			for range rapid.IntRange(0, 30).Draw(t, "steps") {
				w.step(t)
				within()
				w.follow()
			}
		}
		w.settle(t, within)
		newest, olds := split(w.d, w.sets)
		if newest.GetStatus().GetAvailableReplicas() != replicas {
			t.Fatalf("ends with %s", w.sizes())
		}
		for _, rs := range olds {
			if rs.GetSpec().GetReplicas() != 0 {
				t.Fatalf("ends with %s", w.sizes())
			}
		}
	})
}

func TestAScaledRolloutGrowsInProportion(t *testing.T) {
	w := &world{d: testDeployment(10, 0, 5), now: now}
	image(w.d, "v1")
	w.settle(t, nil)
	image(w.d, "v2")
	for range 3 { // a new set, the old one down, the new one up
		w.step(t)
	}
	before := w.sizes()
	w.d.Spec.Replicas = proto.Int32(20)
	p := w.step(t)
	if len(p.Update) != 2 {
		t.Fatalf("%s: %d sets change, want both", before, len(p.Update))
	}
	if total, _ := w.count(); total != 20 {
		t.Errorf("%d replicas after scaling, want 20: %s", total, w.sizes())
	}
	w.settle(t, nil)
	if total, available := w.count(); total != 20 || available != 20 {
		t.Errorf("ends with %s", w.sizes())
	}
}

func TestRecreateWaitsUntilOldPodsAreGone(t *testing.T) {
	w := &world{d: testDeployment(2, 0, 0), now: now}
	w.d.Spec.Strategy = &appsv1.DeploymentStrategy{Type: proto.String("Recreate")}
	image(w.d, "v1")
	w.settle(t, nil)
	image(w.d, "v2")
	w.oldPods = 2
	w.settle(t, nil)
	if got := w.sizes(); got != "0/0 0/0 " {
		t.Errorf("with old pods left: %s, want nothing running", got)
	}
	w.oldPods = 0
	w.settle(t, nil)
	if got := w.sizes(); got != "0/0 2/2 " {
		t.Errorf("ends with %s", got)
	}
}

func TestAPausedDeploymentOnlyScales(t *testing.T) {
	w := &world{d: testDeployment(2, 1, 0), now: now}
	image(w.d, "v1")
	w.settle(t, nil)
	w.d.Spec.Paused = proto.Bool(true)
	image(w.d, "v2")
	w.settle(t, nil)
	if len(w.sets) != 1 {
		t.Errorf("%d sets, want no new one", len(w.sets))
	}
	w.d.Spec.Replicas = proto.Int32(5)
	w.settle(t, nil)
	if got := w.sizes(); got != "5/5 " {
		t.Errorf("scaled while paused: %s", got)
	}
}

func TestHistoryKeepsTheNewest(t *testing.T) {
	w := &world{d: testDeployment(1, 1, 0), now: now}
	w.d.Spec.RevisionHistoryLimit = proto.Int32(2)
	for i := range 5 {
		image(w.d, "v"+strconv.Itoa(i))
		w.settle(t, nil)
	}
	var revisions []int64
	for _, rs := range w.sets {
		revisions = append(revisions, revisionOf(rs))
	}
	if fmt.Sprint(revisions) != "[3 4 5]" {
		t.Errorf("revisions %v, want the newest and two of history", revisions)
	}
}

func TestTheDeadlineReportsOnce(t *testing.T) {
	w := &world{d: testDeployment(1, 1, 0), now: now}
	image(w.d, "v1")
	p := w.step(t)
	if p.After != 600*time.Second {
		t.Errorf("looks again after %s, want 10m", p.After)
	}
	w.now = now.Add(599 * time.Second)
	w.step(t)
	w.now = now.Add(600 * time.Second)
	w.step(t)
	progressing := (&conditions{list: w.d.GetStatus().GetConditions()}).get(conditionProgressing)
	if progressing.GetReason() != "ProgressDeadlineExceeded" || progressing.GetStatus() != "False" {
		t.Errorf("Progressing %v", progressing)
	}
	w.now = now.Add(time.Hour)
	if p := w.step(t); p.After != 0 || len(p.Update) != 0 {
		t.Errorf("after the deadline: %+v, want nothing rolled back", p)
	}
	w.settle(t, nil)
	progressing = (&conditions{list: w.d.GetStatus().GetConditions()}).get(conditionProgressing)
	if progressing.GetReason() != "NewReplicaSetAvailable" {
		t.Errorf("once it came up after all: %v", progressing)
	}
}
