package table

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/client/quantity"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// computed returns how a column that is more than one field is filled; nil where nobody knows it.
func computed(message protoreflect.FullName, name string) func(*Facts, client.Object) string {
	switch message {
	case "trireme.core.v1.Pod":
		return of(podColumn(name))
	case "trireme.core.v1.Node":
		return of(nodeColumn(name))
	case "trireme.core.v1.Event":
		return of(eventColumn(name))
	case "trireme.core.v1.ConfigMap":
		return of(func(_ *Facts, c *corev1.ConfigMap) string {
			return strconv.Itoa(len(c.GetData()) + len(c.GetBinaryData()))
		})
	case "trireme.core.v1.Secret":
		return of(func(_ *Facts, s *corev1.Secret) string { return strconv.Itoa(len(s.GetData())) })
	case "trireme.core.v1.ServiceAccount":
		return of(func(_ *Facts, s *corev1.ServiceAccount) string { return strconv.Itoa(len(s.GetSecrets())) })
	case "trireme.core.v1.Service":
		return of(serviceColumn(name))
	case "trireme.apps.v1.Deployment":
		return of(deploymentColumn(name))
	case "trireme.apps.v1.ReplicaSet":
		return of(func(_ *Facts, r *appsv1.ReplicaSet) string {
			return templateCell(name, r.GetSpec().GetSelector(), r.GetSpec().GetTemplate())
		})
	case "trireme.scheduling.v1.PodGroup":
		return of(podGroupColumn(name))
	}
	return nil
}

// of makes a cell of one kind's objects a cell of any.
func of[T client.Object](cell func(*Facts, T) string) func(*Facts, client.Object) string {
	if cell == nil {
		return nil
	}
	return func(f *Facts, o client.Object) string {
		object, ok := o.(T)
		if !ok {
			return none
		}
		return cell(f, object)
	}
}

func podColumn(name string) func(*Facts, *corev1.Pod) string {
	switch name {
	case "READY":
		return func(_ *Facts, p *corev1.Pod) string {
			s := SummaryOf(p)
			return fmt.Sprintf("%d/%d", s.Ready, s.Total)
		}
	case "STATUS":
		return func(_ *Facts, p *corev1.Pod) string { return SummaryOf(p).Status }
	case "RESTARTS":
		return func(f *Facts, p *corev1.Pod) string {
			s := SummaryOf(p)
			if s.Restarts == 0 || s.LastRestart.IsZero() {
				return strconv.Itoa(s.Restarts)
			}
			return fmt.Sprintf("%d (%s ago)", s.Restarts, Since(f.Now, s.LastRestart))
		}
	case "GPUS":
		return func(_ *Facts, p *corev1.Pod) string {
			if n := PodGPUs(p); n > 0 {
				return strconv.FormatInt(n, 10)
			}
			return none
		}
	}
	return nil
}

func nodeColumn(name string) func(*Facts, *corev1.Node) string {
	switch name {
	case "STATUS":
		return func(_ *Facts, n *corev1.Node) string { return NodeStatus(n) }
	case "GPUS":
		return func(f *Facts, n *corev1.Node) string {
			total := GPUs(n.GetStatus().GetAllocatable())
			if total == 0 {
				return none
			}
			if f.UsedGPUs == nil {
				return fmt.Sprintf("?/%d", total)
			}
			return fmt.Sprintf("%d/%d", f.UsedGPUs[n.GetMetadata().GetName()], total)
		}
	case "INTERNAL-IP":
		return func(_ *Facts, n *corev1.Node) string {
			for _, a := range n.GetStatus().GetAddresses() {
				if a.GetType() == "InternalIP" {
					return a.GetAddress()
				}
			}
			return none
		}
	case "CPU":
		return func(_ *Facts, n *corev1.Node) string { return orNone(n.GetStatus().GetAllocatable()["cpu"]) }
	case "MEMORY":
		return func(_ *Facts, n *corev1.Node) string { return memory(n.GetStatus().GetAllocatable()["memory"]) }
	}
	return nil
}

// NodeStatus is the STATUS of a node: Ready, NotReady or Unknown, and whether pods are kept away.
func NodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.GetStatus().GetConditions() {
		if c.GetType() != "Ready" {
			continue
		}
		if status = "NotReady"; c.GetStatus() == "True" {
			status = "Ready"
		}
	}
	if n.GetSpec().GetUnschedulable() {
		status += ",SchedulingDisabled"
	}
	return status
}

// memory rounds a quantity of bytes for reading.
func memory(text string) string {
	q, err := quantity.Parse(text)
	if err != nil {
		return orNone(text)
	}
	const mi, gi = 1 << 20, 1 << 30
	switch bytes := q.Value(); {
	case bytes >= 10*gi:
		return fmt.Sprintf("%dGi", bytes/gi)
	case bytes >= gi:
		return fmt.Sprintf("%.1fGi", float64(bytes)/gi)
	default:
		return fmt.Sprintf("%dMi", bytes/mi)
	}
}

// GPUs counts the GPUs among resources: nvidia.com/gpu and every other extended resource of that name.
func GPUs(resources map[string]string) int64 {
	var sum int64
	for name, text := range resources {
		if !strings.HasSuffix(name, "/gpu") {
			continue
		}
		if q, err := quantity.Parse(text); err == nil {
			sum += q.Value()
		}
	}
	return sum
}

// PodGPUs is how many GPUs a pod holds: what its containers ask for together, or its largest init container alone.
func PodGPUs(p *corev1.Pod) int64 {
	asks := func(r *corev1.ResourceRequirements) int64 {
		return max(GPUs(r.GetRequests()), GPUs(r.GetLimits()))
	}
	var sum, first int64
	for _, c := range p.GetSpec().GetContainers() {
		sum += asks(c.GetResources())
	}
	for _, c := range p.GetSpec().GetInitContainers() {
		first = max(first, asks(c.GetResources()))
	}
	return max(sum, first)
}

// UsedGPUs sums the GPUs of pods that are bound and not over, by node.
func UsedGPUs(pods []*corev1.Pod) map[string]int64 {
	used := map[string]int64{}
	for _, p := range pods {
		phase := p.GetStatus().GetPhase()
		if node := p.GetSpec().GetNodeName(); node != "" && phase != "Succeeded" && phase != "Failed" {
			used[node] += PodGPUs(p)
		}
	}
	return used
}

func eventColumn(name string) func(*Facts, *corev1.Event) string {
	switch name {
	case "LAST SEEN":
		return func(f *Facts, e *corev1.Event) string { return EventAge(f, e) }
	case "OBJECT":
		return func(_ *Facts, e *corev1.Event) string {
			o := e.GetInvolvedObject()
			return strings.ToLower(o.GetKind()) + "/" + o.GetName()
		}
	case "SOURCE":
		return func(_ *Facts, e *corev1.Event) string { return EventSource(e) }
	case "COUNT":
		return func(_ *Facts, e *corev1.Event) string { return strconv.Itoa(EventCount(e)) }
	}
	return nil
}

func serviceColumn(name string) func(*Facts, *corev1.Service) string {
	switch name {
	case "EXTERNAL-IP":
		return func(_ *Facts, s *corev1.Service) string {
			ips := slices.Clone(s.GetSpec().GetExternalIps())
			for _, in := range s.GetStatus().GetLoadBalancer().GetIngress() {
				ips = append(ips, in.GetIp()+in.GetHostname())
			}
			if s.GetSpec().GetType() == "ExternalName" {
				ips = append(ips, s.GetSpec().GetExternalName())
			}
			if len(ips) == 0 && s.GetSpec().GetType() == "LoadBalancer" {
				return "<pending>"
			}
			return orNone(strings.Join(ips, ","))
		}
	case "PORT(S)":
		return func(_ *Facts, s *corev1.Service) string {
			ports := make([]string, len(s.GetSpec().GetPorts()))
			for i, p := range s.GetSpec().GetPorts() {
				ports[i] = strconv.Itoa(int(p.GetPort()))
				if p.GetNodePort() > 0 {
					ports[i] += ":" + strconv.Itoa(int(p.GetNodePort()))
				}
				ports[i] += "/" + p.GetProtocol()
			}
			return orNone(strings.Join(ports, ","))
		}
	case "SELECTOR":
		return func(_ *Facts, s *corev1.Service) string { return Map(s.GetSpec().GetSelector()) }
	}
	return nil
}

func deploymentColumn(name string) func(*Facts, *appsv1.Deployment) string {
	if name == "READY" {
		return func(_ *Facts, d *appsv1.Deployment) string {
			return fmt.Sprintf("%d/%d", d.GetStatus().GetReadyReplicas(), d.GetSpec().GetReplicas())
		}
	}
	return func(_ *Facts, d *appsv1.Deployment) string {
		return templateCell(name, d.GetSpec().GetSelector(), d.GetSpec().GetTemplate())
	}
}

// templateCell fills the columns that everything with a pod template has.
func templateCell(name string, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec) string {
	var parts []string
	switch name {
	case "CONTAINERS":
		for _, c := range template.GetSpec().GetContainers() {
			parts = append(parts, c.GetName())
		}
	case "IMAGES":
		for _, c := range template.GetSpec().GetContainers() {
			parts = append(parts, c.GetImage())
		}
	case "SELECTOR":
		return Selector(selector)
	}
	return orNone(strings.Join(parts, ","))
}

func podGroupColumn(name string) func(*Facts, *schedulingv1.PodGroup) string {
	switch name {
	case "POLICY":
		return func(_ *Facts, g *schedulingv1.PodGroup) string {
			if g.GetSpec().GetSchedulingPolicy().GetGang() != nil {
				return "gang"
			}
			return "basic"
		}
	case "SCHEDULED":
		return func(_ *Facts, g *schedulingv1.PodGroup) string {
			for _, c := range g.GetStatus().GetConditions() {
				if c.GetType() == "PodGroupInitiallyScheduled" {
					return c.GetStatus()
				}
			}
			return none
		}
	}
	return nil
}

// Map writes labels and their like: a=1,b=2.
func Map(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, key+"="+m[key])
	}
	return orNone(strings.Join(parts, ","))
}

// Selector writes a label selector in the syntax of -l.
func Selector(s *metav1.LabelSelector) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(s.GetMatchLabels())) {
		parts = append(parts, key+"="+s.GetMatchLabels()[key])
	}
	for _, e := range s.GetMatchExpressions() {
		switch e.GetOperator() {
		case "Exists":
			parts = append(parts, e.GetKey())
		case "DoesNotExist":
			parts = append(parts, "!"+e.GetKey())
		default:
			parts = append(parts, fmt.Sprintf("%s %s (%s)", e.GetKey(), strings.ToLower(e.GetOperator()), strings.Join(e.GetValues(), ",")))
		}
	}
	return orNone(strings.Join(parts, ","))
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}
