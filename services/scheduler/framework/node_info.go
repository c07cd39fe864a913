package framework

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// NodeInfo is a node with the pods on it, assumed ones included, and the sums that filters and scores read.
type NodeInfo struct {
	// Node as the gateway last gave it; nil while pods of a deleted node are still known. Not to be changed.
	Node *corev1.Node
	// Index is the node's position in its snapshot, and in the copies made from there.
	Index int32
	// Pods on the node in the order in which they came.
	Pods []*PodInfo
	// Requested is the sum of the pods' requests.
	Requested Resource
	// Scored is the sum of what the pods count as when nodes are scored.
	Scored Resource
	// Allocatable is what pods may use of the node.
	Allocatable Resource
	// Ports in use on the node.
	Ports HostPorts
	// Images on the node with their sizes, by each of their names. Not to be changed.
	Images map[string]int64
	// Generation grows with every change, over all nodes of a cache.
	Generation int64
}

// Name of the node; empty where Node is nil.
func (n *NodeInfo) Name() string { return n.Node.GetMetadata().GetName() }

// Labels of the node. Not to be changed.
func (n *NodeInfo) Labels() map[string]string { return n.Node.GetMetadata().GetLabels() }

// Taints of the node. Not to be changed.
func (n *NodeInfo) Taints() []*corev1.Taint { return n.Node.GetSpec().GetTaints() }

// SetNode takes over a node's new state. A quantity that cannot be read counts as zero and is returned as an error.
func (n *NodeInfo) SetNode(node *corev1.Node) error {
	n.Node = node
	if node == nil {
		n.Allocatable, n.Images = Resource{}, nil
		return nil
	}
	allocatable, err := ParseResource(node.GetStatus().GetAllocatable())
	n.Allocatable = allocatable
	n.Images = nil
	for _, image := range node.GetStatus().GetImages() {
		for _, name := range image.GetNames() {
			if n.Images == nil {
				n.Images = make(map[string]int64)
			}
			n.Images[name] = image.GetSizeBytes()
		}
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name(), err)
	}
	return nil
}

// AddPod puts a pod on the node.
func (n *NodeInfo) AddPod(pod *PodInfo) {
	n.Pods = append(n.Pods, pod)
	n.count(pod, 1)
}

func (n *NodeInfo) count(pod *PodInfo, sign int64) {
	n.Requested.add(&pod.Request, sign)
	n.Scored.add(&pod.Scored, sign)
	if len(pod.Ports) > 0 {
		if n.Ports == nil {
			n.Ports = make(HostPorts)
		}
		n.Ports.add(pod.Ports, int32(sign))
	}
}

var errNotOnNode = errors.New("not on the node")

// RemovePod takes the pod with this uid off the node. It looks from the end, so that taking off pods in the reverse
// order of their coming restores exactly what was.
func (n *NodeInfo) RemovePod(uid string) error {
	for i := len(n.Pods) - 1; i >= 0; i-- {
		pod := n.Pods[i]
		if pod.UID() != uid {
			continue
		}
		n.Pods = slices.Delete(n.Pods, i, i+1)
		n.count(pod, -1)
		return nil
	}
	return fmt.Errorf("pod with uid %s: %w", uid, errNotOnNode)
}

// ReplacePod puts another state of a pod in its place, which must be on the node.
func (n *NodeInfo) ReplacePod(old, pod *PodInfo) error {
	i := slices.Index(n.Pods, old)
	if i < 0 {
		return fmt.Errorf("pod with uid %s: %w", old.UID(), errNotOnNode)
	}
	n.Pods[i] = pod
	n.count(old, -1)
	n.count(pod, 1)
	return nil
}

// CopyFrom makes n equal to o and independent of it, reusing what n holds.
func (n *NodeInfo) CopyFrom(o *NodeInfo) {
	old := n.Pods
	pods := append(old[:0], o.Pods...)
	if len(old) > len(pods) {
		clear(old[len(pods):]) // pods that left must not be kept alive
	}
	*n = NodeInfo{
		Node:        o.Node,
		Index:       o.Index,
		Pods:        pods,
		Requested:   o.Requested.Clone(),
		Scored:      o.Scored.Clone(),
		Allocatable: o.Allocatable.Clone(),
		Ports:       maps.Clone(o.Ports),
		Images:      o.Images,
		Generation:  o.Generation,
	}
}

// Clone returns a copy to try things out on.
func (n *NodeInfo) Clone() *NodeInfo {
	var c NodeInfo
	c.CopyFrom(n)
	return &c
}
