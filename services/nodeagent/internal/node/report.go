package node

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sort"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/quantity"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// maxImages reported, the largest first.
const maxImages = 50

func (m *Manager) labels() map[string]string {
	labels := map[string]string{
		"kubernetes.io/hostname": m.cfg.Name,
		"kubernetes.io/os":       m.os(),
		"kubernetes.io/arch":     goruntime.GOARCH,
	}
	for k, v := range m.cfg.Labels {
		labels[k] = v
	}
	return labels
}

// os of the containers: a simulated node pretends to be what containers are made for.
func (m *Manager) os() string {
	if m.cfg.Machine != nil {
		return "linux"
	}
	return goruntime.GOOS
}

// status computes what is reported; what others write into it stays.
func (m *Manager) status(ctx context.Context, stored *corev1.NodeStatus) *corev1.NodeStatus {
	info, runtimeErr := m.deps.Runtime.Info(ctx)
	out := &corev1.NodeStatus{
		Capacity: map[string]string{}, Allocatable: map[string]string{},
		DaemonEndpoints: &corev1.NodeDaemonEndpoints{KubeletEndpoint: &corev1.DaemonEndpoint{Port: m.cfg.Port()}},
		NodeInfo:        m.info(info),
		Images:          m.images(ctx, stored),
		VolumesInUse:    stored.GetVolumesInUse(), VolumesAttached: stored.GetVolumesAttached(),
	}
	for name, q := range m.capacity() {
		out.Capacity[name], out.Allocatable[name] = q.Format(), q.Format()
	}
	for name, r := range m.deps.Devices.Resources() {
		out.Capacity[name], out.Allocatable[name] = quantity.New(r.Capacity).Format(), quantity.New(r.Allocatable).Format()
	}
	// A resource whose plugin is gone for good stays known, as none: schedulers must not take it for unlimited.
	for name := range stored.GetCapacity() {
		if _, ok := out.Capacity[name]; !ok {
			out.Capacity[name], out.Allocatable[name] = "0", "0"
		}
	}
	for _, ip := range m.cfg.IPs {
		out.Addresses = append(out.Addresses, &corev1.NodeAddress{Type: "InternalIP", Address: ip})
	}
	out.Addresses = append(out.Addresses, &corev1.NodeAddress{Type: "Hostname", Address: m.cfg.Name})
	out.Conditions = m.conditions(info, runtimeErr, stored.GetConditions())
	return out
}

func (m *Manager) info(info runtime.Info) *corev1.NodeSystemInfo {
	out := &corev1.NodeSystemInfo{
		KubeletVersion: m.cfg.Version, OperatingSystem: m.os(), Architecture: goruntime.GOARCH,
		ContainerRuntimeVersion: info.Name + "://" + info.Version,
	}
	if m.cfg.Machine == nil {
		identify(out)
	}
	return out
}

func (m *Manager) images(ctx context.Context, stored *corev1.NodeStatus) []*corev1.ContainerImage {
	list, err := m.deps.Runtime.Images().List(ctx)
	if err != nil {
		// The runtime's own condition tells.
		return stored.GetImages()
	}
	sort.SliceStable(list, func(i, j int) bool {
		if list[i].SizeBytes != list[j].SizeBytes {
			return list[i].SizeBytes > list[j].SizeBytes
		}
		return list[i].ID < list[j].ID
	})
	var out []*corev1.ContainerImage
	for _, i := range list[:min(len(list), maxImages)] {
		out = append(out, &corev1.ContainerImage{Names: i.Names, SizeBytes: i.SizeBytes})
	}
	return out
}

func (m *Manager) conditions(info runtime.Info, runtimeErr error, stored []*corev1.NodeCondition) []*corev1.NodeCondition {
	now := timestamppb.New(time.Now().Truncate(time.Second))
	var list []*corev1.NodeCondition
	add := func(kind string, is bool, reason, message string) {
		c := &corev1.NodeCondition{
			Type: kind, Status: "False", Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		}
		if is {
			c.Status = "True"
		}
		for _, before := range stored {
			if before.GetType() == kind && before.GetStatus() == c.GetStatus() {
				c.LastTransitionTime = before.GetLastTransitionTime()
			}
		}
		list = append(list, c)
	}
	p := pressure{}
	if m.cfg.Machine == nil {
		p = measurePressure(m.cfg.StateDir)
	}
	add("MemoryPressure", p.memory, pick(p.memory, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"),
		pick(p.memory, "node agent has insufficient memory available", "node agent has sufficient memory available"))
	add("DiskPressure", p.disk, pick(p.disk, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure"),
		pick(p.disk, "node agent has disk pressure", "node agent has no disk pressure"))
	add("PIDPressure", p.pids, pick(p.pids, "KubeletHasInsufficientPID", "KubeletHasSufficientPID"),
		pick(p.pids, "node agent has insufficient PID available", "node agent has sufficient PID available"))
	switch {
	case runtimeErr != nil:
		add("Ready", false, "KubeletNotReady", "container runtime is down: "+runtimeErr.Error())
	case !info.NetworkReady:
		add("Ready", false, "KubeletNotReady", "container runtime network not ready: waiting for spec.podCIDR of the node")
	default:
		add("Ready", true, "KubeletReady", fmt.Sprintf("node agent is posting ready status (%s %s)", info.Name, info.Version))
	}
	own := map[string]bool{}
	for _, c := range list {
		own[c.GetType()] = true
	}
	for _, c := range stored {
		if !own[c.GetType()] {
			list = append(list, c)
		}
	}
	return list
}

func pick(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// pressure says of what the machine has too little.
type pressure struct{ memory, disk, pids bool }

// The thresholds of Kubernetes for hard eviction.
const (
	minMemoryBytes  = 100 << 20
	minDiskPercent  = 10
	minInodePercent = 5
)
