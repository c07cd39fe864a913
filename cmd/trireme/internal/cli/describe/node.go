package describe

import (
	"fmt"
	"maps"
	"slices"

	"trireme.dev/client/quantity"
	"trireme.dev/cmd/trireme/internal/cli/table"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func (p *page) node(n *corev1.Node, pods []*corev1.Pod) {
	meta, spec, status := n.GetMetadata(), n.GetSpec(), n.GetStatus()
	p.head(meta)
	p.line(0, "Status:\t%s", table.NodeStatus(n))
	p.labels(meta)
	p.created(meta)
	if len(spec.GetTaints()) == 0 {
		p.line(0, "Taints:\t<none>")
	}
	for i, t := range spec.GetTaints() {
		text := t.GetKey()
		if t.GetValue() != "" {
			text += "=" + t.GetValue()
		}
		p.line(0, "%s\t%s:%s", lead(i, "Taints:"), text, t.GetEffect())
	}
	p.line(0, "Unschedulable:\t%t", spec.GetUnschedulable())
	conditions(p, status.GetConditions(), func(c *corev1.NodeCondition) string {
		if c.GetLastTransitionTime() == nil {
			return "-"
		}
		return p.since(c.GetLastTransitionTime().AsTime())
	})
	if len(status.GetAddresses()) > 0 {
		p.section(0, "Addresses:")
	}
	for _, a := range status.GetAddresses() {
		p.line(1, "%s:\t%s", a.GetType(), a.GetAddress())
	}
	p.resources("Capacity", status.GetCapacity())
	p.resources("Allocatable", status.GetAllocatable())
	info := status.GetNodeInfo()
	p.section(0, "System Info:")
	for _, entry := range [][2]string{
		{"Machine ID", info.GetMachineId()},
		{"Kernel Version", info.GetKernelVersion()},
		{"OS Image", info.GetOsImage()},
		{"Operating System", info.GetOperatingSystem()},
		{"Architecture", info.GetArchitecture()},
		{"Container Runtime", info.GetContainerRuntimeVersion()},
		{"Node Agent", info.GetKubeletVersion()},
	} {
		if entry[1] != "" {
			p.line(1, "%s:\t%s", entry[0], entry[1])
		}
	}
	if spec.GetPodCidr() != "" {
		p.line(0, "PodCIDR:\t%s", spec.GetPodCidr())
	}
	p.nodePods(status.GetAllocatable(), pods)
}

func (p *page) resources(title string, m map[string]string) {
	p.section(0, title+":")
	for _, name := range slices.Sorted(maps.Keys(m)) {
		p.line(1, "%s:\t%s", name, m[name])
	}
}

// nodePods writes the pods that hold resources of the node, and the sums of what they hold.
func (p *page) nodePods(allocatable map[string]string, all []*corev1.Pod) {
	var pods []*corev1.Pod
	for _, pod := range all {
		if phase := pod.GetStatus().GetPhase(); phase != "Succeeded" && phase != "Failed" {
			pods = append(pods, pod)
		}
	}
	p.section(0, fmt.Sprintf("Pods holding resources: (%d)", len(pods)))
	requests, limits := map[string]quantity.Quantity{}, map[string]quantity.Quantity{}
	if len(pods) > 0 {
		p.line(1, "Namespace\tName\tCPU\tMemory\tGPUs\tAge")
		p.line(1, "---------\t----\t---\t------\t----\t---")
	}
	for _, pod := range pods {
		own := map[string]quantity.Quantity{}
		for _, c := range pod.GetSpec().GetContainers() {
			add(own, c.GetResources().GetRequests())
			add(limits, c.GetResources().GetLimits())
		}
		for name, q := range own {
			requests[name] = requests[name].Add(q)
		}
		meta := pod.GetMetadata()
		p.line(1, "%s\t%s\t%s\t%s\t%d\t%s", meta.GetNamespace(), meta.GetName(),
			own["cpu"].Format(), own["memory"].Format(), table.PodGPUs(pod), p.since(meta.GetCreationTimestamp().AsTime()))
	}
	p.section(0, "Allocated resources:")
	p.line(1, "Resource\tRequests\tLimits")
	p.line(1, "--------\t--------\t------")
	for _, name := range slices.Sorted(maps.Keys(allocatable)) {
		if name == "pods" {
			p.line(1, "pods\t%d%s", len(pods), share(quantity.New(int64(len(pods))), allocatable[name]))
			continue
		}
		p.line(1, "%s\t%s%s\t%s%s", name, requests[name].Format(), share(requests[name], allocatable[name]),
			limits[name].Format(), share(limits[name], allocatable[name]))
	}
}

func add(sum map[string]quantity.Quantity, resources map[string]string) {
	for name, text := range resources {
		if q, err := quantity.Parse(text); err == nil {
			sum[name] = sum[name].Add(q)
		}
	}
}

// share is how much of the total something is, in percent.
func share(part quantity.Quantity, total string) string {
	q, err := quantity.Parse(total)
	if err != nil || q.MilliValue() <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%d%%)", int64(float64(part.MilliValue())*100/float64(q.MilliValue())))
}
