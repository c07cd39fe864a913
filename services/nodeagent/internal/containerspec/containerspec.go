// Package containerspec turns a pod's spec into what a runtime is told to make: sandbox, environment, resources,
// security.
//
// It decides purely: no I/O, no clock. It stands between the pod worker, which fetches what is needed, and the runtime.
package containerspec

import (
	"cmp"
	"slices"
	"strings"

	"trireme.dev/client/quantity"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// Sandbox describes a pod's sandbox.
func Sandbox(pod *corev1.Pod, node Node) runtime.SandboxSpec {
	meta, spec := pod.GetMetadata(), pod.GetSpec()
	s := runtime.SandboxSpec{
		PodUID: meta.GetUid(), Namespace: meta.GetNamespace(), Name: meta.GetName(), Hostname: hostname(pod, node),
		HostNetwork: spec.GetHostNetwork(), HostPID: spec.GetHostPid(), HostIPC: spec.GetHostIpc(),
		Labels: meta.GetLabels(), Annotations: meta.GetAnnotations(),
		Cgroup: runtime.PodCgroup{QOS: QOS(pod), Resources: podResources(pod)},
	}
	if spec.GetHostNetwork() {
		return s
	}
	for _, list := range [][]*corev1.Container{spec.GetInitContainers(), spec.GetContainers()} {
		for _, c := range list {
			for _, p := range c.GetPorts() {
				if p.GetHostPort() > 0 {
					s.HostPorts = append(s.HostPorts, runtime.HostPort{
						HostIP: p.GetHostIp(), HostPort: p.GetHostPort(), ContainerPort: p.GetContainerPort(),
						Protocol: cmp.Or(p.GetProtocol(), "TCP"),
					})
				}
			}
		}
	}
	return s
}

// hostname is cut to what the kernel takes as Kubernetes cuts it.
func hostname(pod *corev1.Pod, node Node) string {
	spec := pod.GetSpec()
	if spec.GetHostNetwork() {
		return node.Name
	}
	name := cmp.Or(spec.GetHostnameOverride(), spec.GetHostname(), pod.GetMetadata().GetName())
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	return name
}

// Container describes a container but for its mounts, devices, log and attempt, which others know.
func Container(pod *corev1.Pod, c *corev1.Container, init bool, env *Env, node Node) runtime.ContainerSpec {
	return runtime.ContainerSpec{
		PodUID: pod.GetMetadata().GetUid(), Name: c.GetName(), Init: init, Image: c.GetImage(),
		Command: env.expandAll(c.GetCommand()), Args: env.expandAll(c.GetArgs()), WorkingDir: c.GetWorkingDir(),
		Env: env.List(), Resources: containerResources(pod, c, node), QOS: QOS(pod), Security: security(pod, c),
		TTY: c.GetTty(), Stdin: c.GetStdin(), StdinOnce: c.GetStdinOnce(),
		TerminationMessagePath: cmp.Or(c.GetTerminationMessagePath(), "/dev/termination-log"),
	}
}

func security(pod *corev1.Pod, c *corev1.Container) runtime.Security {
	of, own := pod.GetSpec().GetSecurityContext(), c.GetSecurityContext()
	s := runtime.Security{
		Groups:           of.GetSupplementalGroups(),
		Privileged:       own.GetPrivileged(),
		ReadOnlyRootFS:   own.GetReadOnlyRootFilesystem(),
		AddCapabilities:  capabilities(own.GetCapabilities().GetAdd()),
		DropCapabilities: capabilities(own.GetCapabilities().GetDrop()),
	}
	if of != nil {
		s.RunAsUser, s.RunAsGroup = of.RunAsUser, of.RunAsGroup
	}
	if own != nil {
		if own.RunAsUser != nil {
			s.RunAsUser = own.RunAsUser
		}
		if own.RunAsGroup != nil {
			s.RunAsGroup = own.RunAsGroup
		}
		s.NoNewPrivileges = own.AllowPrivilegeEscalation != nil && !own.GetAllowPrivilegeEscalation()
	}
	return s
}

// capabilities are written with or without CAP_.
func capabilities(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.TrimPrefix(strings.ToUpper(n), "CAP_")
	}
	return out
}

// QOS is a pod's class. The gateway computed it when the pod was made; where it did not, it follows from the spec.
func QOS(pod *corev1.Pod) runtime.QOSClass {
	if q := pod.GetStatus().GetQosClass(); q != "" {
		return runtime.QOSClass(q)
	}
	any, guaranteed := false, true
	for _, list := range [][]*corev1.Container{pod.GetSpec().GetInitContainers(), pod.GetSpec().GetContainers()} {
		for _, c := range list {
			for _, name := range []string{"cpu", "memory"} {
				limit, request := Limit(c, name), Request(c, name)
				any = any || limit.Sign() > 0 || request.Sign() > 0
				guaranteed = guaranteed && limit.Sign() > 0 && limit.Cmp(request) == 0
			}
		}
	}
	switch {
	case !any:
		return runtime.BestEffort
	case guaranteed:
		return runtime.Guaranteed
	}
	return runtime.Burstable
}

// Request of a container for a resource; its limit where it has none. The gateway has refused what does not parse.
func Request(c *corev1.Container, name string) quantity.Quantity {
	s, ok := c.GetResources().GetRequests()[name]
	if !ok {
		s = c.GetResources().GetLimits()[name]
	}
	q, err := parseOrZero(s)
	if err != nil {
		return quantity.New(0)
	}
	return q
}

// Limit of a container for a resource; 0 where it has none.
func Limit(c *corev1.Container, name string) quantity.Quantity {
	q, err := parseOrZero(c.GetResources().GetLimits()[name])
	if err != nil {
		return quantity.New(0)
	}
	return q
}

// Requests adds up what a pod asks of its node, as the scheduler does.
func Requests(pod *corev1.Pod) map[string]quantity.Quantity {
	names := map[string]bool{}
	for _, c := range slices.Concat(pod.GetSpec().GetInitContainers(), pod.GetSpec().GetContainers()) {
		for n := range c.GetResources().GetRequests() {
			names[n] = true
		}
		for n := range c.GetResources().GetLimits() {
			names[n] = true
		}
	}
	for n := range pod.GetSpec().GetOverhead() {
		names[n] = true
	}
	sum := map[string]quantity.Quantity{}
	for n := range names {
		sum[n] = together(pod, n, Request)
	}
	return sum
}

// together is the most that a pod's containers come to at any time, its overhead included: app containers run beside
// all sidecars, and each init container beside the sidecars that were started before it (KEP-753).
func together(pod *corev1.Pod, name string, of func(*corev1.Container, string) quantity.Quantity) quantity.Quantity {
	running, peak := quantity.New(0), quantity.New(0)
	for _, c := range pod.GetSpec().GetInitContainers() {
		now := running.Add(of(c, name))
		if c.GetRestartPolicy() == "Always" {
			running = now
		}
		if now.Cmp(peak) > 0 {
			peak = now
		}
	}
	for _, c := range pod.GetSpec().GetContainers() {
		running = running.Add(of(c, name))
	}
	if running.Cmp(peak) > 0 {
		peak = running
	}
	// The gateway has validated the overhead.
	if overhead, err := quantity.Parse(pod.GetSpec().GetOverhead()[name]); err == nil {
		peak = peak.Add(overhead)
	}
	return peak
}

// podResources bounds a pod as a whole. A resource of which one container has no limit has none for the pod.
func podResources(pod *corev1.Pod) runtime.Resources {
	r := runtime.Resources{CPUShares: 2}
	requested := together(pod, "cpu", Request)
	if milli := requested.MilliValue(); milli > 0 {
		r.CPUShares = shares(milli)
	}
	limited := func(name string) bool {
		return !slices.ContainsFunc(slices.Concat(pod.GetSpec().GetInitContainers(), pod.GetSpec().GetContainers()),
			func(c *corev1.Container) bool { l := Limit(c, name); return l.Sign() <= 0 })
	}
	if limited("cpu") {
		cpu := together(pod, "cpu", Limit)
		r.CPUQuotaMicros = quota(cpu.MilliValue())
	}
	if limited("memory") {
		memory := together(pod, "memory", Limit)
		r.MemoryLimitBytes = memory.Value()
	}
	return r
}

func containerResources(pod *corev1.Pod, c *corev1.Container, node Node) runtime.Resources {
	r := runtime.Resources{CPUShares: 2, OOMScoreAdj: oomScoreAdj(pod, c, node)}
	if milli := Request(c, "cpu").MilliValue(); milli > 0 {
		r.CPUShares = shares(milli)
	}
	if milli := Limit(c, "cpu").MilliValue(); milli > 0 {
		r.CPUQuotaMicros = quota(milli)
	}
	r.MemoryLimitBytes = Limit(c, "memory").Value()
	return r
}

func shares(milli int64) uint64 { return uint64(min(max(milli*1024/1000, 2), 262144)) }

// quota per 100 ms; the kernel takes no less than 1 ms.
func quota(milli int64) int64 { return max(milli*100, 1000) }

func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, node Node) int {
	switch QOS(pod) {
	case runtime.Guaranteed:
		return -997
	case runtime.BestEffort:
		return 1000
	}
	if node.MemoryBytes <= 0 {
		return 999
	}
	return int(min(max(1000-1000*Request(c, "memory").Value()/node.MemoryBytes, 3), 999))
}
