package containerspec

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"trireme.dev/client/quantity"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// Node is what a pod may learn of its node.
type Node struct {
	// Name of the node.
	Name string
	// IPs of the node, the main one first.
	IPs []string
	// CPUMillis and MemoryBytes that the node has for pods, which a container without a limit is told as its limit.
	CPUMillis, MemoryBytes int64
}

// Field reads a field of a pod for the downward API. podIPs are those of its sandbox.
func Field(pod *corev1.Pod, node Node, podIPs []string, path string) (string, error) {
	meta, spec := pod.GetMetadata(), pod.GetSpec()
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.labels":
			return meta.GetLabels()[key], nil
		case "metadata.annotations":
			return meta.GetAnnotations()[key], nil
		}
		return "", fmt.Errorf("unsupported fieldPath: %s", path)
	}
	if spec.GetHostNetwork() {
		podIPs = node.IPs
	}
	switch path {
	case "metadata.name":
		return meta.GetName(), nil
	case "metadata.namespace":
		return meta.GetNamespace(), nil
	case "metadata.uid":
		return meta.GetUid(), nil
	case "metadata.labels":
		return lines(meta.GetLabels()), nil
	case "metadata.annotations":
		return lines(meta.GetAnnotations()), nil
	case "spec.nodeName":
		return spec.GetNodeName(), nil
	case "spec.serviceAccountName":
		return spec.GetServiceAccountName(), nil
	case "status.hostIP":
		return first(node.IPs), nil
	case "status.hostIPs":
		return strings.Join(node.IPs, ","), nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

// ResourceField reads a request or limit of a container. A limit that is not set is what the node has.
func ResourceField(pod *corev1.Pod, own string, node Node, ref *corev1.ResourceFieldSelector) (string, error) {
	name := ref.GetContainerName()
	if name == "" {
		name = own
	}
	c := find(pod, name)
	if c == nil {
		return "", fmt.Errorf("container %s not found", name)
	}
	kind, resource, ok := strings.Cut(ref.GetResource(), ".")
	if !ok || (kind != "limits" && kind != "requests") {
		return "", fmt.Errorf("unsupported container resource: %s", ref.GetResource())
	}
	value := c.GetResources().GetLimits()[resource]
	if kind == "requests" {
		if r, ok := c.GetResources().GetRequests()[resource]; ok {
			value = r
		}
	}
	divisor := ref.GetDivisor()
	if divisor == "" || divisor == "0" {
		divisor = "1"
	}
	q, err := parseOrZero(value)
	if err != nil {
		return "", err
	}
	if value == "" && kind == "limits" {
		switch resource {
		case "cpu":
			q = quantity.NewMilli(node.CPUMillis)
		case "memory":
			q = quantity.NewBytes(node.MemoryBytes)
		}
	}
	d, err := quantity.Parse(divisor)
	if err != nil {
		return "", err
	}
	if d.Sign() <= 0 {
		return "", fmt.Errorf("divisor %s of %s must be greater than zero", divisor, ref.GetResource())
	}
	if resource == "cpu" {
		return strconv.FormatInt(ceil(q.MilliValue(), d.MilliValue()), 10), nil
	}
	return strconv.FormatInt(ceil(q.Value(), d.Value()), 10), nil
}

func ceil(a, b int64) int64 {
	n := a / b
	if a%b != 0 {
		n++
	}
	return n
}

func parseOrZero(s string) (quantity.Quantity, error) {
	if s == "" {
		return quantity.New(0), nil
	}
	return quantity.Parse(s)
}

func subscript(path string) (name, key string, ok bool) {
	name, rest, found := strings.Cut(path, "['")
	if !found {
		return "", "", false
	}
	key, tail, found := strings.Cut(rest, "']")
	return name, key, found && tail == ""
}

// lines gives a map as the downward API writes it: key="value", sorted.
func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for k, v := range m {
		out = append(out, k+"="+strconv.Quote(v))
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func find(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]*corev1.Container{pod.GetSpec().GetContainers(), pod.GetSpec().GetInitContainers()} {
		for _, c := range list {
			if c.GetName() == name {
				return c
			}
		}
	}
	return nil
}
