package framework

import corev1 "trireme.dev/proto/gen/trireme/core/v1"

// HostPort is a port of a node.
type HostPort struct {
	// IP of the node that it is opened on; 0.0.0.0 for all.
	IP       string
	Protocol string
	Port     int32
}

const anyIP = "0.0.0.0"

func hostPorts(spec *corev1.PodSpec) []HostPort {
	var out []HostPort
	add := func(c *corev1.Container) {
		for _, p := range c.GetPorts() {
			if p.GetHostPort() <= 0 {
				continue
			}
			h := HostPort{p.GetHostIp(), p.GetProtocol(), p.GetHostPort()}
			if h.IP == "" || h.IP == "::" {
				h.IP = anyIP
			}
			if h.Protocol == "" {
				h.Protocol = "TCP"
			}
			out = append(out, h)
		}
	}
	for _, c := range spec.GetContainers() {
		add(c)
	}
	for _, c := range spec.GetInitContainers() {
		if c.GetRestartPolicy() == "Always" {
			add(c)
		}
	}
	return out
}

// HostPorts are the ports in use on a node, with how many pods use each.
type HostPorts map[HostPort]int32

// Conflicts reports whether one of the ports is taken: the same port and protocol on the same address, or on all of them.
func (u HostPorts) Conflicts(want []HostPort) bool {
	if len(u) == 0 {
		return false
	}
	for _, w := range want {
		if u[w] > 0 || u[HostPort{anyIP, w.Protocol, w.Port}] > 0 {
			return true
		}
		if w.IP != anyIP {
			continue
		}
		for h := range u {
			if h.Port == w.Port && h.Protocol == w.Protocol {
				return true
			}
		}
	}
	return false
}

func (u HostPorts) add(ports []HostPort, sign int32) {
	for _, p := range ports {
		if n := u[p] + sign; n != 0 {
			u[p] = n
		} else {
			delete(u, p)
		}
	}
}
