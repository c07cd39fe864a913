package framework

import (
	"slices"
	"strconv"
	"strings"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// ResourceID numbers a resource within Columns.
type ResourceID int

// The resources that every node has; extended ones follow in the order in which they came up.
const (
	CPU ResourceID = iota // in thousandths
	Memory
	EphemeralStorage
	fixedResources
)

// Columns are the nodes of a snapshot laid out for passes over all of them: element i of each column is of the node at
// position i, in the order of Snapshot. They are read-only for plugins, right at any moment of a cycle (pods that the
// cycle has assumed so far included), and positions stay what they are until Snapshot.Epoch changes.
//
// A pass over the cpus looks like this:
//
//	have, used := nodes.Allocatable[framework.CPU], nodes.Requested[framework.CPU]
//	for _, i := range open {
//		if want > have[i]-used[i] {
//			verdicts.Reject(i, reason)
//		}
//	}
type Columns struct {
	// Nodes in order.
	Nodes []*NodeInfo
	// Allocatable and Requested by resource, then by position.
	Allocatable, Requested [][]int64
	// ScoredCPU and ScoredMemory are what the pods count as when nodes are scored.
	ScoredCPU, ScoredMemory []int64
	// Pods on the node, and how many it takes.
	Pods, AllowedPods []int64
	// PortsInUse is how many different host ports are taken.
	PortsInUse []int32
	// Unschedulable nodes are cordoned.
	Unschedulable []bool
	// TaintSet is which of the sets of taints the node has: nodes with equal lists of taints have equal numbers, 0 is none.
	TaintSet []int32

	resources map[string]ResourceID // extended ones
	names     []string              // by ResourceID, from fixedResources on
	taints    [][]*corev1.Taint     // by set
	taintSets map[string]int32
	labels    map[string]*LabelColumn
	images    map[string]*ImageColumn
}

// Resource returns the number of a resource, and false where no node has it and no pod on a node asks for it.
func (c *Columns) Resource(name string) (ResourceID, bool) {
	switch name {
	case ResourceCPU:
		return CPU, true
	case ResourceMemory:
		return Memory, true
	case ResourceEphemeralStorage:
		return EphemeralStorage, true
	}
	id, ok := c.resources[name]
	return id, ok
}

// Taints of a set. Not to be changed.
func (c *Columns) Taints(set int32) []*corev1.Taint { return c.taints[set] }

// TaintSets is how many there are, 0 included.
func (c *Columns) TaintSets() int { return len(c.taints) }

// rebuild lays out the nodes anew.
func (c *Columns) rebuild(nodes []*NodeInfo) {
	n := len(nodes)
	c.Nodes = nodes
	c.Allocatable, c.Requested = make([][]int64, fixedResources), make([][]int64, fixedResources)
	for r := range c.Allocatable {
		c.Allocatable[r], c.Requested[r] = make([]int64, n), make([]int64, n)
	}
	c.ScoredCPU, c.ScoredMemory = make([]int64, n), make([]int64, n)
	c.Pods, c.AllowedPods = make([]int64, n), make([]int64, n)
	c.PortsInUse, c.Unschedulable, c.TaintSet = make([]int32, n), make([]bool, n), make([]int32, n)
	c.resources, c.names = map[string]ResourceID{}, nil
	c.taints, c.taintSets = [][]*corev1.Taint{nil}, map[string]int32{"": 0}
	if c.labels == nil {
		c.labels = map[string]*LabelColumn{}
	}
	for i, info := range nodes {
		c.setNode(i, info)
		c.setPods(i, info)
	}
	for _, l := range c.labels {
		l.fill(nodes)
	}
	clear(c.images)
}

// setPods takes over what changes with the pods of a node.
func (c *Columns) setPods(i int, n *NodeInfo) {
	c.Requested[CPU][i], c.Requested[Memory][i] = n.Requested.MilliCPU, n.Requested.Memory
	c.Requested[EphemeralStorage][i] = n.Requested.EphemeralStorage
	c.ScoredCPU[i], c.ScoredMemory[i] = n.Scored.MilliCPU, n.Scored.Memory
	c.Pods[i] = int64(len(n.Pods))
	c.PortsInUse[i] = int32(len(n.Ports))
	for r := range c.names {
		c.Requested[int(fixedResources)+r][i] = 0
	}
	for name, v := range n.Requested.Scalar {
		c.Requested[c.intern(name)][i] = v
	}
}

// setNode takes over what changes with the node's object.
func (c *Columns) setNode(i int, n *NodeInfo) {
	c.Allocatable[CPU][i], c.Allocatable[Memory][i] = n.Allocatable.MilliCPU, n.Allocatable.Memory
	c.Allocatable[EphemeralStorage][i] = n.Allocatable.EphemeralStorage
	c.AllowedPods[i] = n.Allocatable.AllowedPods
	for r := range c.names {
		c.Allocatable[int(fixedResources)+r][i] = 0
	}
	for name, v := range n.Allocatable.Scalar {
		c.Allocatable[c.intern(name)][i] = v
	}
	c.Unschedulable[i] = n.Node.GetSpec().GetUnschedulable()
	c.TaintSet[i] = c.internTaints(n.Taints())
}

func (c *Columns) intern(resource string) ResourceID {
	id, ok := c.resources[resource]
	if !ok {
		id = fixedResources + ResourceID(len(c.names))
		c.resources[resource] = id
		c.names = append(c.names, resource)
		c.Allocatable = append(c.Allocatable, make([]int64, len(c.Nodes)))
		c.Requested = append(c.Requested, make([]int64, len(c.Nodes)))
	}
	return id
}

func (c *Columns) internTaints(taints []*corev1.Taint) int32 {
	if len(taints) == 0 {
		return 0
	}
	var b strings.Builder
	for _, t := range taints {
		for _, s := range []string{t.GetKey(), t.GetValue(), t.GetEffect()} {
			b.WriteString(strconv.Quote(s))
		}
	}
	id, ok := c.taintSets[b.String()]
	if !ok {
		id = int32(len(c.taints))
		c.taintSets[b.String()] = id
		c.taints = append(c.taints, taints)
	}
	return id
}

// LabelColumn is one label of all nodes.
type LabelColumn struct {
	// Key of the label.
	Key string
	// Values by position, as numbers; 0 where the node does not have the label. Not to be changed.
	Values []int32

	names []string // by number
	ids   map[string]int32
}

// Label returns the column of a label. It is made when it is first asked for.
func (c *Columns) Label(key string) *LabelColumn {
	l := c.labels[key]
	if l == nil {
		if c.labels == nil {
			c.labels = map[string]*LabelColumn{}
		}
		l = &LabelColumn{Key: key}
		l.fill(c.Nodes)
		c.labels[key] = l
	}
	return l
}

// Count is how many numbers there are, 0 included; not each need be in use.
func (l *LabelColumn) Count() int { return len(l.names) }

// Name is the value with that number; empty for 0.
func (l *LabelColumn) Name(id int32) string { return l.names[id] }

// ID is the number of a value, and false where no node has it.
func (l *LabelColumn) ID(value string) (int32, bool) {
	id, ok := l.ids[value]
	return id, ok
}

func (l *LabelColumn) fill(nodes []*NodeInfo) {
	l.Values = make([]int32, len(nodes))
	l.names, l.ids = []string{""}, map[string]int32{}
	for i, n := range nodes {
		l.Values[i] = l.intern(n)
	}
}

func (l *LabelColumn) intern(n *NodeInfo) int32 {
	value, ok := n.Labels()[l.Key]
	if !ok {
		return 0
	}
	id, ok := l.ids[value]
	if !ok {
		id = int32(len(l.names))
		l.ids[value] = id
		l.names = append(l.names, value)
	}
	return id
}

// ImageColumn is one image on all nodes.
type ImageColumn struct {
	// Sizes by position; a node that does not have the image has 0. Not to be changed.
	Sizes []int64
	// Nodes is how many have it.
	Nodes int
}

// Image returns the column of an image by one of its names. It is made when it is first asked for.
func (c *Columns) Image(name string) *ImageColumn {
	column := c.images[name]
	if column != nil {
		return column
	}
	column = &ImageColumn{Sizes: make([]int64, len(c.Nodes))}
	for i, n := range c.Nodes {
		if size, ok := n.Images[name]; ok {
			column.Sizes[i] = size
			column.Nodes++
		}
	}
	if c.images == nil || len(c.images) >= maxImages {
		c.images = map[string]*ImageColumn{}
	}
	c.images[name] = column
	return column
}

// maxImages bounds the columns of images that are kept.
const maxImages = 1024

// setImages takes over the images of the node at i.
func (c *Columns) setImages(i int32, was, is map[string]int64) {
	if len(c.images) == 0 {
		return
	}
	for name := range was {
		if column := c.images[name]; column != nil {
			column.Sizes[i] = 0
			column.Nodes--
		}
	}
	for name, size := range is {
		if column := c.images[name]; column != nil {
			column.Sizes[i] = size
			column.Nodes++
		}
	}
}

// positions of n nodes.
func positions(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return slices.Clip(out)
}
