package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// maxData is how much a ConfigMap or Secret may hold, as Kubernetes has it: less than what can be stored.
const maxData = 1 << 20

func checkSize(p *path, size int, out *violations) {
	if size > maxData {
		out.add(p, fmt.Sprintf("Too long: may not be more than %d bytes", maxData))
	}
}

func checkConfigMap(p *path, c *corev1.ConfigMap, out *violations) {
	size := 0
	for k, v := range c.GetData() {
		size += len(v)
		if _, both := c.GetBinaryData()[k]; both {
			out.invalid(p.field("data").key(k), strconv.Quote(k), "duplicate of key present in binaryData")
		}
	}
	for _, v := range c.GetBinaryData() {
		size += len(v)
	}
	checkSize(p.field("data"), size, out)
}

// secretKeys are what Secrets of a type must hold.
var secretKeys = map[string][]string{
	"kubernetes.io/dockercfg":        {".dockercfg"},
	"kubernetes.io/dockerconfigjson": {".dockerconfigjson"},
	"kubernetes.io/ssh-auth":         {"ssh-privatekey"},
	"kubernetes.io/tls":              {"tls.crt", "tls.key"},
}

func checkSecret(p *path, s *corev1.Secret, out *violations) {
	size := 0
	for _, v := range s.GetData() {
		size += len(v)
	}
	checkSize(p.field("data"), size, out)
	for _, key := range secretKeys[s.GetType()] {
		if _, ok := s.GetData()[key]; !ok {
			out.required(p.field("data").key(key), "")
		}
	}
	if s.GetType() == "kubernetes.io/basic-auth" && s.GetData()["username"] == nil && s.GetData()["password"] == nil {
		out.required(p.field("data").key("username"), "")
		out.required(p.field("data").key("password"), "")
	}
}

// checkEvent holds that an event lies in the namespace of what it is about; of cluster-scoped objects, in default or
// kube-system.
func checkEvent(p *path, e *corev1.Event, out *violations) {
	own, about := e.GetMetadata().GetNamespace(), e.GetInvolvedObject().GetNamespace()
	if about == own || about == "" && (own == "default" || own == "kube-system") {
		return
	}
	out.invalid(p.field("involvedObject").field("namespace"), strconv.Quote(about), "does not match event.namespace")
}

func checkLease(p *path, s *coordinationv1.LeaseSpec, out *violations) {
	if s.PreferredHolder != nil && s.GetPreferredHolder() != "" && s.GetStrategy() == "" {
		out.forbidden(p.field("preferredHolder"), "may only be specified when `strategy` is defined")
	}
}

func checkService(p *path, s *corev1.ServiceSpec, out *violations) {
	external := s.GetType() == "ExternalName"
	headless := s.GetClusterIp() == "None"
	switch name := s.GetExternalName(); {
	case !external:
	case name == "":
		out.required(p.field("externalName"), "")
	default:
		words(validation.IsDNS1123Subdomain)(p.field("externalName"), name, out)
	}
	if external && s.GetClusterIp() != "" {
		out.forbidden(p.field("clusterIPs"), "may not be set for ExternalName services")
	}
	if !external && !headless && len(s.GetPorts()) == 0 {
		out.required(p.field("ports"), "")
	}
	if ip := s.GetClusterIp(); ip != "" && !headless {
		for _, e := range validation.IsValidIP(nil, ip) {
			out.invalid(p.field("clusterIP"), strconv.Quote(ip), e.Detail)
		}
	}
	if headless && (s.GetType() == "NodePort" || s.GetType() == "LoadBalancer") {
		out.invalid(p.field("clusterIPs").item(0), `"None"`, "may not be set to 'None' for LoadBalancer services")
	}
	names := map[string]bool{}
	for i, port := range s.GetPorts() {
		here := p.field("ports").item(i)
		switch name := port.GetName(); {
		case name == "" && len(s.GetPorts()) > 1:
			out.required(here.field("name"), "")
		case name != "" && names[name]:
			out.duplicate(here.field("name"), strconv.Quote(name))
		}
		names[port.GetName()] = true
		if target := port.GetTargetPort(); target.GetNumberValue() != float64(port.GetPort()) { // else it came from the port
			checkPort(here.field("targetPort"), target, out)
		}
		if port.GetNodePort() != 0 && s.GetType() == "ClusterIP" {
			out.forbidden(here.field("nodePort"), "may not be used when `type` is 'ClusterIP'")
		}
	}
}

func checkAmounts(p *path, amounts map[string]string, out *violations) {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if q, ok := QuantityOf(amounts[name]); ok && q.Sign() < 0 {
			out.invalid(p.key(name), strconv.Quote(amounts[name]), "must be greater than or equal to 0")
		}
	}
}
