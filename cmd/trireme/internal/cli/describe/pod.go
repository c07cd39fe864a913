package describe

import (
	"fmt"
	"strconv"
	"strings"

	"trireme.dev/cmd/trireme/internal/cli/table"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func (p *page) pod(pod *corev1.Pod) {
	meta, spec, status := pod.GetMetadata(), pod.GetSpec(), pod.GetStatus()
	p.head(meta)
	if spec.Priority != nil {
		p.line(0, "Priority:\t%d", spec.GetPriority())
	}
	if spec.GetPriorityClassName() != "" {
		p.line(0, "Priority Class:\t%s", spec.GetPriorityClassName())
	}
	node := "<none>"
	if spec.GetNodeName() != "" {
		node = strings.TrimSuffix(spec.GetNodeName()+"/"+status.GetHostIp(), "/")
	}
	p.line(0, "Node:\t%s", node)
	if group := spec.GetSchedulingGroup().GetPodGroupName(); group != "" {
		p.line(0, "Pod Group:\t%s", group)
	}
	if status.GetStartTime() != nil {
		p.line(0, "Start Time:\t%s", stamp(status.GetStartTime()))
	}
	p.labels(meta)
	p.created(meta)
	p.line(0, "Status:\t%s", table.SummaryOf(pod).Status)
	if status.GetReason() != "" {
		p.line(0, "Reason:\t%s", status.GetReason())
	}
	if status.GetMessage() != "" {
		p.line(0, "Message:\t%s", oneLine(status.GetMessage()))
	}
	if status.GetPodIp() != "" {
		p.line(0, "IP:\t%s", status.GetPodIp())
	}
	if n := table.PodGPUs(pod); n > 0 {
		p.line(0, "GPUs:\t%d", n)
	}
	p.containers("Init Containers", spec.GetInitContainers(), status.GetInitContainerStatuses())
	p.containers("Containers", spec.GetContainers(), status.GetContainerStatuses())
	conditions(p, status.GetConditions(), func(c *corev1.PodCondition) string {
		if c.GetLastTransitionTime() == nil {
			return "-"
		}
		return p.since(c.GetLastTransitionTime().AsTime())
	})
	p.volumes(spec.GetVolumes())
	p.section(0, "")
	p.line(0, "QoS Class:\t%s", orDash(status.GetQosClass()))
	p.pairs(0, "Node-Selectors", spec.GetNodeSelector())
	p.tolerations(spec.GetTolerations())
}

// containers writes what is asked of each container and how it fares. statuses is nil for a template.
func (p *page) containers(title string, containers []*corev1.Container, statuses []*corev1.ContainerStatus) {
	if len(containers) == 0 {
		return
	}
	p.section(0, title+":")
	for _, c := range containers {
		p.section(1, c.GetName()+":")
		p.line(2, "Image:\t%s", c.GetImage())
		for _, s := range statuses {
			if s.GetName() == c.GetName() {
				p.containerStatus(s)
			}
		}
		for _, port := range c.GetPorts() {
			p.line(2, "Port:\t%d/%s", port.GetContainerPort(), port.GetProtocol())
			if port.GetHostPort() > 0 {
				p.line(2, "Host Port:\t%d/%s", port.GetHostPort(), port.GetProtocol())
			}
		}
		if len(c.GetCommand()) > 0 {
			p.line(2, "Command:\t%s", quoted(c.GetCommand()))
		}
		if len(c.GetArgs()) > 0 {
			p.line(2, "Args:\t%s", quoted(c.GetArgs()))
		}
		if limits := c.GetResources().GetLimits(); len(limits) > 0 {
			p.pairs(2, "Limits", limits)
		}
		if requests := c.GetResources().GetRequests(); len(requests) > 0 {
			p.pairs(2, "Requests", requests)
		}
		p.environment(c)
		for i, m := range c.GetVolumeMounts() {
			mode := "rw"
			if m.GetReadOnly() {
				mode = "ro"
			}
			p.line(2, "%s\t%s from %s (%s)", lead(i, "Mounts:"), m.GetMountPath(), m.GetName(), mode)
		}
	}
}

func lead(i int, title string) string {
	if i == 0 {
		return title
	}
	return ""
}

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		if out[i] = w; w == "" || strings.ContainsAny(w, " \t\n\"'$\\") {
			out[i] = strconv.Quote(w)
		}
	}
	return strings.Join(out, " ")
}

func (p *page) containerStatus(s *corev1.ContainerStatus) {
	if s.GetContainerId() != "" {
		p.line(2, "Container ID:\t%s", s.GetContainerId())
	}
	if s.GetImageId() != "" {
		p.line(2, "Image ID:\t%s", s.GetImageId())
	}
	p.state("State", s.GetState())
	if last := s.GetLastState(); last.GetTerminated() != nil || last.GetWaiting() != nil || last.GetRunning() != nil {
		p.state("Last State", last)
	}
	p.line(2, "Ready:\t%t", s.GetReady())
	p.line(2, "Restart Count:\t%d", s.GetRestartCount())
}

func (p *page) state(title string, s *corev1.ContainerState) {
	switch {
	case s.GetRunning() != nil:
		p.line(2, "%s:\tRunning", title)
		if t := s.GetRunning().GetStartedAt(); t != nil {
			p.line(3, "Started:\t%s", stamp(t))
		}
	case s.GetTerminated() != nil:
		t := s.GetTerminated()
		p.line(2, "%s:\tTerminated", title)
		p.line(3, "Reason:\t%s", orDash(t.GetReason()))
		if t.GetMessage() != "" {
			p.line(3, "Message:\t%s", oneLine(t.GetMessage()))
		}
		p.line(3, "Exit Code:\t%d", t.GetExitCode())
		if t.GetSignal() != 0 {
			p.line(3, "Signal:\t%d", t.GetSignal())
		}
		if t.GetStartedAt() != nil {
			p.line(3, "Started:\t%s", stamp(t.GetStartedAt()))
		}
		if t.GetFinishedAt() != nil {
			p.line(3, "Finished:\t%s", stamp(t.GetFinishedAt()))
		}
	default:
		p.line(2, "%s:\tWaiting", title)
		if r := s.GetWaiting().GetReason(); r != "" {
			p.line(3, "Reason:\t%s", r)
		}
		if m := s.GetWaiting().GetMessage(); m != "" {
			p.line(3, "Message:\t%s", oneLine(m))
		}
	}
}

func (p *page) environment(c *corev1.Container) {
	i := 0
	for _, from := range c.GetEnvFrom() {
		source := "ConfigMap " + from.GetConfigMapRef().GetName()
		if from.GetSecretRef() != nil {
			source = "Secret " + from.GetSecretRef().GetName()
		}
		p.line(2, "%s\tall of %s", lead(i, "Environment:"), source)
		i++
	}
	for _, e := range c.GetEnv() {
		value := firstLine(e.GetValue())
		switch from := e.GetValueFrom(); {
		case from.GetConfigMapKeyRef() != nil:
			value = fmt.Sprintf("<key %s of ConfigMap %s>", from.GetConfigMapKeyRef().GetKey(), from.GetConfigMapKeyRef().GetName())
		case from.GetSecretKeyRef() != nil:
			value = fmt.Sprintf("<key %s of Secret %s>", from.GetSecretKeyRef().GetKey(), from.GetSecretKeyRef().GetName())
		case from.GetFieldRef() != nil:
			value = fmt.Sprintf("<%s>", from.GetFieldRef().GetFieldPath())
		case from.GetResourceFieldRef() != nil:
			value = fmt.Sprintf("<%s>", from.GetResourceFieldRef().GetResource())
		}
		p.line(2, "%s\t%s=%s", lead(i, "Environment:"), e.GetName(), value)
		i++
	}
}

func (p *page) volumes(volumes []*corev1.Volume) {
	if len(volumes) == 0 {
		return
	}
	p.section(0, "Volumes:")
	for _, v := range volumes {
		text := ""
		switch {
		case v.GetEmptyDir() != nil:
			text = "EmptyDir"
			if v.GetEmptyDir().GetMedium() != "" {
				text += " in " + v.GetEmptyDir().GetMedium()
			}
		case v.GetHostPath() != nil:
			text = "HostPath " + v.GetHostPath().GetPath()
		case v.GetConfigMap() != nil:
			text = "ConfigMap " + v.GetConfigMap().GetName()
		case v.GetSecret() != nil:
			text = "Secret " + v.GetSecret().GetSecretName()
		default:
			// Any other source is the one other field that is set.
			m := v.ProtoReflect()
			fields := m.Descriptor().Fields()
			for i := range fields.Len() {
				if fd := fields.Get(i); fd.Name() != "name" && m.Has(fd) {
					text = fd.JSONName()
				}
			}
		}
		p.line(1, "%s:\t%s", v.GetName(), text)
	}
}

func (p *page) tolerations(all []*corev1.Toleration) {
	if len(all) == 0 {
		p.line(0, "Tolerations:\t<none>")
	}
	for i, t := range all {
		text := t.GetKey()
		if t.GetValue() != "" {
			text += "=" + t.GetValue()
		}
		if t.GetEffect() != "" {
			text += ":" + t.GetEffect()
		}
		if t.GetOperator() == "Exists" {
			text = strings.TrimSpace(text + " op=Exists")
		}
		if t.TolerationSeconds != nil {
			text += fmt.Sprintf(" for %ds", t.GetTolerationSeconds())
		}
		p.line(0, "%s\t%s", lead(i, "Tolerations:"), text)
	}
}
