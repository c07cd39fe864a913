// Package coscheduling is a scheduler plugin as somebody else would write one: it imports the framework and nothing else of
// the scheduler, and is compiled in by one line (cmd/scheduler/main.go).
//
// Pods with the label pod-group.scheduling.sigs.k8s.io/name form a group; its label .../min-available says how many of
// them must have a place before any is bound. A pod that has a place waits at Permit for the others; the last one lets all
// go. Where one fails, all that wait are refused and give their places back. Trireme's own gangs (PodGroup) do better: they
// are placed as a whole and bound in one write.
package coscheduling

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "Coscheduling"

// Labels of a group's pods.
const (
	LabelGroup        = "pod-group.scheduling.sigs.k8s.io/name"
	LabelMinAvailable = "pod-group.scheduling.sigs.k8s.io/min-available"
)

// Args are the plugin's arguments, under the names of scheduler-plugins' CoschedulingArgs.
type Args struct {
	// PermitWaitingTimeSeconds that a pod holds its place for the others.
	PermitWaitingTimeSeconds int64 `json:"permitWaitingTimeSeconds"`
}

// DefaultArgs returns the defaults.
func DefaultArgs() *Args { return &Args{PermitWaitingTimeSeconds: 60} }

// Validate refuses what cannot be meant.
func (a *Args) Validate() error {
	if a.PermitWaitingTimeSeconds < 1 {
		return fmt.Errorf("permitWaitingTimeSeconds is %d, want at least 1", a.PermitWaitingTimeSeconds)
	}
	return nil
}

// Factory is what the scheduler is given.
func Factory() framework.Factory { return framework.NewFactory(Name, 0, DefaultArgs, New) }

// Plugin is a PreEnqueue, Reserve and Permit.
type Plugin struct {
	handle framework.Handle
	wait   time.Duration

	mu sync.Mutex
	// refused are the pods of a group that gave their places back, to be tried again when another one comes.
	refused map[string]map[string]*framework.PodInfo
}

// New builds the plugin.
func New(h framework.Handle, args *Args) (*Plugin, error) {
	return &Plugin{
		handle: h, wait: time.Duration(args.PermitWaitingTimeSeconds) * time.Second,
		refused: map[string]map[string]*framework.PodInfo{},
	}, nil
}

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions: room is what lets the rest of a group in.
func (*Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}},
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeAllocatable}},
	}
}

// group of a pod, and how many of it must have a place; false where it has none.
func group(pod *framework.PodInfo) (key string, least int, ok bool) {
	labels := pod.Labels()
	name := labels[LabelGroup]
	least, err := strconv.Atoi(labels[LabelMinAvailable])
	if name == "" || err != nil || least < 2 {
		return "", 0, false
	}
	return pod.Namespace() + "/" + name, least, true
}

// PreEnqueue implements framework.PreEnqueuePlugin: a label that is no number would have the pod go alone.
func (*Plugin) PreEnqueue(pod *framework.PodInfo) *framework.Status {
	text, labelled := pod.Labels()[LabelMinAvailable]
	if _, err := strconv.Atoi(text); labelled && err != nil {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, fmt.Sprintf("label %s is %q, want a number", LabelMinAvailable, text))
	}
	return nil
}

// Reserve implements framework.ReservePlugin.
func (p *Plugin) Reserve(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ string) *framework.Status {
	if key, _, ok := group(pod); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.refused[key], pod.UID())
	}
	return nil
}

// Unreserve implements framework.ReservePlugin: one that gives its place back has the others of its group do so too.
func (p *Plugin) Unreserve(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ string) {
	key, _, ok := group(pod)
	if !ok {
		return
	}
	p.mu.Lock()
	if p.refused[key] == nil {
		p.refused[key] = map[string]*framework.PodInfo{}
	}
	p.refused[key][pod.UID()] = pod
	p.mu.Unlock()
	p.eachWaiting(key, func(w framework.WaitingPod) {
		w.Reject(Name, fmt.Sprintf("pod %s of the group has lost its place", pod.Name()))
	})
}

// Permit implements framework.PermitPlugin.
func (p *Plugin) Permit(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ string) (*framework.Status, time.Duration) {
	key, least, ok := group(pod)
	if !ok {
		return nil, 0
	}
	placed, err := p.placed(pod)
	if err != nil {
		return framework.AsStatus(err), 0
	}
	if placed+1 < least {
		p.activate(key)
		return framework.NewStatus(framework.Wait, fmt.Sprintf("%d of %d pods of group %s have a place", placed+1, least, key)), p.wait
	}
	p.eachWaiting(key, func(w framework.WaitingPod) { w.Allow(Name) })
	return nil, 0
}

// placed counts the other pods of the group that are on nodes, those that wait here included.
func (p *Plugin) placed(pod *framework.PodInfo) (int, error) {
	mates, err := framework.NewPodSelector(framework.PodSelectorConfig{
		Namespaces: []string{pod.Namespace()}, SkipTerminating: true,
		Labels: &metav1.LabelSelector{MatchLabels: map[string]string{LabelGroup: pod.Labels()[LabelGroup]}},
	})
	if err != nil {
		return 0, err
	}
	return int(p.handle.Snapshot().Matching(mates).Total), nil
}

// activate has those of the group that gave their places back tried again, now that another one has one.
func (p *Plugin) activate(key string) {
	p.mu.Lock()
	var pods []*framework.PodInfo
	for _, pod := range p.refused[key] {
		pods = append(pods, pod)
	}
	delete(p.refused, key)
	p.mu.Unlock()
	p.handle.Activate(pods...)
}

func (p *Plugin) eachWaiting(key string, fn func(framework.WaitingPod)) {
	p.handle.EachWaitingPod(func(w framework.WaitingPod) {
		if other, _, ok := group(w.Pod()); ok && other == key {
			fn(w)
		}
	})
}
