package framework

import (
	"errors"
	"fmt"
	"maps"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// PodInfo is a pod with what the scheduler derives from it once instead of in every cycle. It is immutable; a changed
// pod gets a new one.
type PodInfo struct {
	// Pod as the gateway last gave it. Not to be changed.
	Pod *corev1.Pod
	// Request is what the pod takes of its node.
	Request Resource
	// Scored is what the pod counts as when nodes are scored: cpu and memory, with a floor for containers that ask
	// for nothing.
	Scored Resource
	// Ports of the node that the pod takes.
	Ports []HostPort
	// Affinity to other pods, and against them; nil where it has none.
	Affinity *PodAffinity
	// Class is what selectors see of the pod.
	Class LabelClass

	priority int32
	derived  bool // by NewPodInfo
}

// NewPodInfo derives a PodInfo. A quantity or selector that cannot be read, which the gateway does not let happen, counts
// as zero or selects nothing, and is returned as an error beside the PodInfo.
func NewPodInfo(pod *corev1.Pod) (*PodInfo, error) {
	request, scored, err := podRequests(pod.GetSpec())
	affinity, err2 := podAffinity(pod)
	if err = errors.Join(err, err2); err != nil {
		err = fmt.Errorf("pod %s: %w", Key(pod), err)
	}
	return &PodInfo{
		Pod: pod, Request: request, Scored: scored, Ports: hostPorts(pod.GetSpec()), Affinity: affinity, Class: classOf(pod),
		priority: pod.GetSpec().GetPriority(), derived: true,
	}, err
}

// Now is the pod in another state, which must be of the same pod. What is derived is taken over where nothing that it
// depends on has changed.
func (p *PodInfo) Now(pod *corev1.Pod) (*PodInfo, error) {
	was, is := p.Pod.GetMetadata(), pod.GetMetadata()
	if !p.derived || is.GetGeneration() == 0 || was.GetGeneration() != is.GetGeneration() || !maps.Equal(was.GetLabels(), is.GetLabels()) {
		return NewPodInfo(pod)
	}
	c := *p
	c.Pod = pod
	return &c, nil
}

// UID of the pod.
func (p *PodInfo) UID() string { return p.Pod.GetMetadata().GetUid() }

// Name is "namespace/name".
func (p *PodInfo) Name() string { return Key(p.Pod) }

// Namespace of the pod.
func (p *PodInfo) Namespace() string { return p.Pod.GetMetadata().GetNamespace() }

// Labels of the pod. Not to be changed.
func (p *PodInfo) Labels() map[string]string { return p.Pod.GetMetadata().GetLabels() }

// Terminating reports whether the pod is being deleted.
func (p *PodInfo) Terminating() bool { return p.Pod.GetMetadata().GetDeletionTimestamp() != nil }

// Priority of the pod, 0 where it has none.
func (p *PodInfo) Priority() int32 {
	if p.derived {
		return p.priority
	}
	return p.Pod.GetSpec().GetPriority()
}

// Group returns the key of the pod's group and whether it has one.
func (p *PodInfo) Group() (GroupKey, bool) { return GroupOf(p.Pod) }

// SameGroup reports whether both pods are of one group.
func (p *PodInfo) SameGroup(other *PodInfo) bool {
	key, ok := p.Group()
	if !ok {
		return false
	}
	theirs, ok := other.Group()
	return ok && theirs == key
}

// GroupKey names a PodGroup.
type GroupKey struct{ Namespace, Name string }

// String is "namespace/name".
func (k GroupKey) String() string { return k.Namespace + "/" + k.Name }

// GroupOf returns the key of a pod's group and whether it has one.
func GroupOf(pod *corev1.Pod) (GroupKey, bool) {
	name := pod.GetSpec().GetSchedulingGroup().GetPodGroupName()
	if name == "" {
		return GroupKey{}, false
	}
	return GroupKey{pod.GetMetadata().GetNamespace(), name}, true
}

// Key is "namespace/name" of a pod.
func Key(pod *corev1.Pod) string {
	return pod.GetMetadata().GetNamespace() + "/" + pod.GetMetadata().GetName()
}
