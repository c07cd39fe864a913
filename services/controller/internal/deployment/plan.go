package deployment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
)

// Input is what a plan is made from.
type Input struct {
	// Deployment as it is.
	Deployment *appsv1.Deployment
	// Sets that it controls, in any order. Not changed.
	Sets []*appsv1.ReplicaSet
	// OldPods counts pods of sets other than the newest that still exist, those on their way out included; Recreate
	// waits for them.
	OldPods int
	// Now is the time.
	Now time.Time
}

// Plan is what to do next. Each plan is one step: the events of its effects bring the next.
type Plan struct {
	// Create a set, nil for none.
	Create *appsv1.ReplicaSet
	// Update these sets: they are changed copies.
	Update []*appsv1.ReplicaSet
	// Delete these sets: old, empty, and beyond the history that is kept.
	Delete []*appsv1.ReplicaSet
	// Revision that the Deployment is to be annotated with.
	Revision string
	// Status that the Deployment is to have.
	Status *appsv1.DeploymentStatus
	// After is when the Deployment's deadline has to be looked at again; zero for never.
	After time.Duration
}

// Compute plans the next step of a Deployment, as Kubernetes' deployment controller takes it: first scale the new set up
// as far as the surge allows, else the old ones down as far as availability allows. It is pure: the same input gives
// the same plan, and nothing but the plan is changed. An error means that the Deployment cannot be read.
func Compute(in Input) (Plan, error) {
	d := in.Deployment
	newest, olds := split(d, in.Sets)
	revision := nextRevision(newest, olds)
	p := Plan{Revision: strconv.FormatInt(revision, 10)}

	r, err := rolloutOf(d)
	if err != nil {
		return p, err
	}
	switch {
	case d.GetMetadata().GetDeletionTimestamp() != nil:
		// Garbage collection takes the sets; nothing is rolled out any more.
	case newest == nil && !d.GetSpec().GetPaused():
		if newest, err = newSet(d, revision); err != nil {
			return p, err
		}
		var sum int32
		for _, rs := range olds {
			sum += rs.GetSpec().GetReplicas()
		}
		switch {
		case !r.recreate:
			newest.Spec.Replicas = proto.Int32(r.newReplicas(0, sum))
		case sum == 0 && in.OldPods == 0:
			newest.Spec.Replicas = proto.Int32(r.desired)
		}
		annotate(newest, r)
		p.Create = newest
	default:
		p.Update = r.next(newest, olds, in.OldPods, d.GetSpec().GetPaused(), revision)
		if len(p.Update) == 0 {
			p.Delete = history(d, newest, olds)
		}
	}
	p.Status, p.After = status(d, newest, olds, r, p.Create != nil, in.Now)
	return p, nil
}

// split finds the set of the present template, the oldest where several are, and sorts the others by age.
func split(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) (newest *appsv1.ReplicaSet, olds []*appsv1.ReplicaSet) {
	sorted := slices.Clone(sets)
	slices.SortStableFunc(sorted, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(
			a.GetMetadata().GetCreationTimestamp().AsTime().Compare(b.GetMetadata().GetCreationTimestamp().AsTime()),
			cmp.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName()))
	})
	for _, rs := range sorted {
		if newest == nil && sameTemplate(d, rs) {
			newest = rs
		} else {
			olds = append(olds, rs)
		}
	}
	return newest, olds
}

// nextRevision is the number of the present template: one above all others, or its own where it has the highest.
func nextRevision(newest *appsv1.ReplicaSet, olds []*appsv1.ReplicaSet) int64 {
	var highest int64
	for _, rs := range olds {
		highest = max(highest, revisionOf(rs))
	}
	return max(highest+1, revisionOf(newest))
}

func revisionOf(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.GetMetadata().GetAnnotations()[revisionAnnotation], 10, 64)
	if err != nil {
		return 0 // not numbered yet, or edited by hand: it is numbered anew
	}
	return n
}

// rollout is what a Deployment's numbers come to.
type rollout struct {
	desired, surge, unavailable int32
	minReady                    *int32
	recreate                    bool
}

// rolloutOf resolves percentages: the surge rounds up, what may be unavailable rounds down, and not both are nothing.
func rolloutOf(d *appsv1.Deployment) (rollout, error) {
	r := rollout{desired: d.GetSpec().GetReplicas(), minReady: d.GetSpec().MinReadySeconds}
	if d.GetSpec().GetStrategy().GetType() == "Recreate" {
		r.recreate = true
		r.unavailable = r.desired
		return r, nil
	}
	rolling := d.GetSpec().GetStrategy().GetRollingUpdate()
	var err error
	if r.surge, err = share(rolling.GetMaxSurge(), r.desired, math.Ceil); err != nil {
		return r, fmt.Errorf("spec.strategy.rollingUpdate.maxSurge: %w", err)
	}
	if r.unavailable, err = share(rolling.GetMaxUnavailable(), r.desired, math.Floor); err != nil {
		return r, fmt.Errorf("spec.strategy.rollingUpdate.maxUnavailable: %w", err)
	}
	if r.surge == 0 && r.unavailable == 0 {
		r.unavailable = 1
	}
	r.unavailable = min(r.unavailable, r.desired)
	return r, nil
}

// share resolves a number or a percentage of total; an absent one is 25%.
func share(v *structpb.Value, total int32, round func(float64) float64) (int32, error) {
	switch v.GetKind().(type) {
	case nil:
		return int32(round(float64(total) * 0.25)), nil
	case *structpb.Value_NumberValue:
		return int32(v.GetNumberValue()), nil
	case *structpb.Value_StringValue:
		percent, err := strconv.ParseInt(strings.TrimSuffix(v.GetStringValue(), "%"), 10, 32)
		if err != nil || !strings.HasSuffix(v.GetStringValue(), "%") {
			return 0, fmt.Errorf("%q: want a number or a percentage", v.GetStringValue())
		}
		return int32(round(float64(total) * float64(percent) / 100)), nil
	default:
		return 0, fmt.Errorf("%v: want a number or a percentage", v)
	}
}

// newReplicas is how far the newest set may grow, when it has size replicas and all sets have total.
func (r rollout) newReplicas(size, total int32) int32 {
	if size > r.desired {
		return r.desired
	}
	return size + max(0, min(r.desired-size, r.desired+r.surge-total))
}

// next returns changed copies of the sets that change in this step.
func (r rollout) next(newest *appsv1.ReplicaSet, olds []*appsv1.ReplicaSet, oldPods int, paused bool, revision int64) []*appsv1.ReplicaSet {
	if rescaled := r.rescale(newest, olds); len(rescaled) > 0 {
		return rescaled
	}
	if paused {
		return nil
	}
	grown := proto.CloneOf(newest)
	grown.Metadata.Annotations = with(grown.GetMetadata().GetAnnotations(), revisionAnnotation, strconv.FormatInt(revision, 10))
	grown.Spec.MinReadySeconds = r.minReady
	total := newest.GetSpec().GetReplicas()
	for _, rs := range olds {
		total += rs.GetSpec().GetReplicas()
	}
	if r.recreate {
		if total-newest.GetSpec().GetReplicas() > 0 {
			return r.scaled(olds, func(*appsv1.ReplicaSet) int32 { return 0 })
		}
		if oldPods == 0 {
			grown.Spec.Replicas = proto.Int32(r.desired)
		}
	} else {
		grown.Spec.Replicas = proto.Int32(r.newReplicas(newest.GetSpec().GetReplicas(), total))
	}
	annotate(grown, r)
	if !proto.Equal(grown, newest) {
		return []*appsv1.ReplicaSet{grown}
	}
	if r.recreate {
		return nil
	}
	return r.shrink(newest, olds, total)
}

// shrink scales old sets down: replicas that are not available anyway go first, then others for as long as enough stay
// available.
func (r rollout) shrink(newest *appsv1.ReplicaSet, olds []*appsv1.ReplicaSet, total int32) []*appsv1.ReplicaSet {
	newUnavailable := newest.GetSpec().GetReplicas() - newest.GetStatus().GetAvailableReplicas()
	room := total - (r.desired - r.unavailable) - newUnavailable
	size := map[*appsv1.ReplicaSet]int32{}
	for _, rs := range olds {
		size[rs] = rs.GetSpec().GetReplicas()
		broken := min(max(0, rs.GetSpec().GetReplicas()-rs.GetStatus().GetAvailableReplicas()), max(0, room))
		size[rs] -= broken
		room -= broken
	}
	spare := newest.GetStatus().GetAvailableReplicas() - (r.desired - r.unavailable)
	for _, rs := range olds {
		spare += rs.GetStatus().GetAvailableReplicas()
	}
	for _, rs := range olds {
		fewer := min(size[rs], max(0, spare), max(0, room))
		size[rs] -= fewer
		spare -= fewer
		room -= fewer
	}
	return r.scaled(olds, func(rs *appsv1.ReplicaSet) int32 { return size[rs] })
}

// rescale follows a change of spec.replicas in the midst of a rollout: all sets grow or shrink in proportion to their
// size, and what rounding leaves goes to the largest, the newest first among equals.
func (r rollout) rescale(newest *appsv1.ReplicaSet, olds []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var sets []*appsv1.ReplicaSet
	for _, rs := range append([]*appsv1.ReplicaSet{newest}, olds...) {
		if rs.GetSpec().GetReplicas() > 0 {
			sets = append(sets, rs)
		}
	}
	changed := slices.ContainsFunc(sets, func(rs *appsv1.ReplicaSet) bool {
		return rs.GetMetadata().GetAnnotations()[desiredAnnotation] != strconv.Itoa(int(r.desired))
	})
	if !changed {
		return nil
	}
	if len(sets) == 1 {
		// Only one set is at work; if it is an old one of a paused rollout it is still the one that serves.
		return r.scaled(sets, func(*appsv1.ReplicaSet) int32 { return r.desired })
	}
	var total int32
	for _, rs := range sets {
		total += rs.GetSpec().GetReplicas()
	}
	allowed := r.desired
	if r.desired > 0 && !r.recreate {
		allowed += r.surge
	}
	size := map[*appsv1.ReplicaSet]int32{}
	left := allowed
	for _, rs := range sets {
		before := max(1, number(rs.GetMetadata().GetAnnotations()[maxAnnotation], total))
		size[rs] = max(0, int32(math.Round(float64(rs.GetSpec().GetReplicas())*float64(allowed)/float64(before))))
		left -= size[rs]
	}
	bySize := slices.Clone(sets)
	slices.SortStableFunc(bySize, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Compare(b.GetSpec().GetReplicas(), a.GetSpec().GetReplicas())
	})
	for _, rs := range bySize {
		if left == 0 {
			break
		}
		step := max(left, -size[rs])
		size[rs] += step
		left -= step
	}
	return r.scaled(sets, func(rs *appsv1.ReplicaSet) int32 { return size[rs] })
}

func number(text string, otherwise int32) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return otherwise
	}
	return int32(n)
}

// scaled returns copies of those sets whose size, or memory of what the Deployment wanted, changes.
func (r rollout) scaled(sets []*appsv1.ReplicaSet, size func(*appsv1.ReplicaSet) int32) []*appsv1.ReplicaSet {
	var changed []*appsv1.ReplicaSet
	for _, rs := range sets {
		c := proto.CloneOf(rs)
		c.Spec.Replicas = proto.Int32(size(rs))
		if c.GetSpec().GetReplicas() == rs.GetSpec().GetReplicas() && c.GetSpec().GetReplicas() == 0 {
			continue
		}
		annotate(c, r)
		if !proto.Equal(c, rs) {
			changed = append(changed, c)
		}
	}
	return changed
}

// annotate remembers on a set what the Deployment wanted when it got its size.
func annotate(rs *appsv1.ReplicaSet, r rollout) {
	rs.Metadata.Annotations = with(rs.GetMetadata().GetAnnotations(), desiredAnnotation, strconv.Itoa(int(r.desired)))
	rs.Metadata.Annotations[maxAnnotation] = strconv.Itoa(int(r.desired + r.surge))
}

// history returns the old sets to delete: empty ones beyond the newest that are kept.
func history(d *appsv1.Deployment, newest *appsv1.ReplicaSet, olds []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	if newest == nil || d.GetSpec().RevisionHistoryLimit == nil || !complete(d, newest) {
		return nil
	}
	var empty []*appsv1.ReplicaSet
	for _, rs := range olds {
		if rs.GetSpec().GetReplicas() == 0 && rs.GetStatus().GetReplicas() == 0 &&
			rs.GetStatus().GetObservedGeneration() >= rs.GetMetadata().GetGeneration() && rs.GetMetadata().GetDeletionTimestamp() == nil {
			empty = append(empty, rs)
		}
	}
	slices.SortStableFunc(empty, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revisionOf(a), revisionOf(b)) })
	return empty[:max(0, len(empty)-int(d.GetSpec().GetRevisionHistoryLimit()))]
}

// complete tells whether the newest set is all there is of the Deployment.
func complete(d *appsv1.Deployment, newest *appsv1.ReplicaSet) bool {
	s := newest.GetStatus()
	desired := d.GetSpec().GetReplicas()
	return newest.GetSpec().GetReplicas() == desired && s.GetReplicas() == desired && s.GetAvailableReplicas() == desired
}
