package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func checkPodSpec(p *path, s *corev1.PodSpec, out *violations) {
	checkContainerNames(p, s, out)
	checkMounts(p, s, out)
	checkHostPorts(p, s, out)
	checkInitContainers(p, s, out)
	checkNetwork(p, s, out)
	checkClaims(p, s, out)
}

// lists are the containers that run, with the field that holds them.
func lists(s *corev1.PodSpec) []struct {
	field      string
	containers []*corev1.Container
} {
	return []struct {
		field      string
		containers []*corev1.Container
	}{{"initContainers", s.GetInitContainers()}, {"containers", s.GetContainers()}}
}

// checkContainerNames refuses a name that stands in two lists; within a list the options do.
func checkContainerNames(p *path, s *corev1.PodSpec, out *violations) {
	init := map[string]bool{}
	for _, c := range s.GetInitContainers() {
		init[c.GetName()] = true
	}
	all := maps.Clone(init)
	for i, c := range s.GetContainers() {
		if init[c.GetName()] && c.GetName() != "" {
			out.duplicate(p.field("containers").item(i).field("name"), strconv.Quote(c.GetName()))
		}
		all[c.GetName()] = true
	}
	for i, c := range s.GetEphemeralContainers() {
		if all[c.GetName()] && c.GetName() != "" {
			out.duplicate(p.field("ephemeralContainers").item(i).field("name"), strconv.Quote(c.GetName()))
		}
	}
}

func checkMounts(p *path, s *corev1.PodSpec, out *violations) {
	volumes := map[string]bool{}
	for _, v := range s.GetVolumes() {
		volumes[v.GetName()] = true
	}
	for _, l := range lists(s) {
		for i, c := range l.containers {
			for j, m := range c.GetVolumeMounts() {
				here := p.field(l.field).item(i).field("volumeMounts").item(j)
				if m.GetName() != "" && !volumes[m.GetName()] {
					out.notFound(here.field("name"), strconv.Quote(m.GetName()))
				}
				if strings.Contains(m.GetMountPath(), ":") {
					out.invalid(here.field("mountPath"), strconv.Quote(m.GetMountPath()), "must not contain ':'")
				}
				checkLocalPath(here.field("subPath"), m.GetSubPath(), out)
				checkLocalPath(here.field("subPathExpr"), m.GetSubPathExpr(), out)
				if m.GetSubPath() != "" && m.GetSubPathExpr() != "" {
					out.invalid(here.field("subPathExpr"), strconv.Quote(m.GetSubPathExpr()), "subPathExpr and subPath are mutually exclusive")
				}
			}
			for j, d := range c.GetVolumeDevices() {
				if d.GetName() != "" && !volumes[d.GetName()] {
					out.notFound(p.field(l.field).item(i).field("volumeDevices").item(j).field("name"), strconv.Quote(d.GetName()))
				}
			}
		}
	}
}

func checkHostPorts(p *path, s *corev1.PodSpec, out *violations) {
	taken := map[string]bool{}
	for i, c := range s.GetContainers() {
		names := map[string]bool{}
		for j, port := range c.GetPorts() {
			here := p.field("containers").item(i).field("ports").item(j)
			if name := port.GetName(); name != "" {
				if names[name] {
					out.duplicate(here.field("name"), strconv.Quote(name))
				}
				names[name] = true
			}
			if port.GetHostPort() == 0 {
				continue
			}
			if s.GetHostNetwork() && port.GetHostPort() != port.GetContainerPort() {
				out.invalid(here.field("hostPort"), strconv.Itoa(int(port.GetHostPort())), "must match `containerPort` when `hostNetwork` is true")
			}
			id := fmt.Sprintf("%s/%s/%d", port.GetProtocol(), port.GetHostIp(), port.GetHostPort())
			if taken[id] {
				out.duplicate(here.field("hostPort"), strconv.Quote(id))
			}
			taken[id] = true
		}
	}
}

func checkContainer(p *path, c *corev1.Container, out *violations) {
	if image := c.GetImage(); image != strings.TrimSpace(image) {
		out.invalid(p.field("image"), strconv.Quote(image), "must not have leading or trailing whitespace")
	}
	checkProbes(p, c, out)
	checkResizePolicies(p, c, out)
}

// checkResources holds requests under limits. Devices and huge pages cannot be shared: there both must be equal.
func checkResources(p *path, r *corev1.ResourceRequirements, out *violations) {
	checkHugePages(p, r, out)
	for _, name := range slices.Sorted(maps.Keys(r.GetLimits())) {
		checkAmount(p.field("limits").key(name), name, r.GetLimits()[name], out)
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetRequests())) {
		here := p.field("requests").key(name)
		if r.GetRequests()[name] != r.GetLimits()[name] { // else it came from the limit, and was checked there
			checkAmount(here, name, r.GetRequests()[name], out)
		}
		request, ok := QuantityOf(r.GetRequests()[name])
		if !ok {
			continue // reported by its format
		}
		text, limited := r.GetLimits()[name]
		limit, valid := QuantityOf(text)
		switch {
		case !limited && !overcommits(name):
			out.required(p.field("limits"), "Limit must be set for non overcommitable resources")
		case !limited || !valid:
		case !overcommits(name) && request.Cmp(limit) != 0:
			out.invalid(p.field("requests"), strconv.Quote(request.String()), fmt.Sprintf("must be equal to %s limit of %s", name, limit))
		case request.Cmp(limit) > 0:
			out.invalid(p.field("requests"), strconv.Quote(request.String()), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit))
		}
	}
}

func checkAmount(p *path, name, text string, out *violations) {
	switch {
	case name == "cpu", name == "memory", name == "ephemeral-storage", strings.HasPrefix(name, "hugepages-"):
	case !strings.Contains(name, "/"):
		out.invalid(p, strconv.Quote(name), "must be a standard resource for containers")
		return
	default:
		words(unless(plainQualified, validation.IsQualifiedName))(p, name, out)
	}
	q, ok := QuantityOf(text)
	if !ok {
		return
	}
	if q.Sign() < 0 {
		out.invalid(p, strconv.Quote(text), "must be greater than or equal to 0")
	}
	if IsExtended(name) && q.MilliValue()%1000 != 0 {
		out.invalid(p, strconv.Quote(text), "must be an integer")
	}
}

// IsExtended reports whether a resource is a device or the like: its name has a domain that is not Kubernetes' own.
func IsExtended(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

func overcommits(name string) bool {
	return !IsExtended(name) && !strings.HasPrefix(name, "hugepages-")
}
