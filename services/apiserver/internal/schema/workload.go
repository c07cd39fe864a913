package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// set names the message fields of m that are set, in order of their names; those in except do not count.
func set(m proto.Message, except ...string) []string {
	var out []string
	m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if fd.Message() != nil && !fd.IsList() && !fd.IsMap() && !slices.Contains(except, fd.JSONName()) {
			out = append(out, fd.JSONName())
		}
		return true
	})
	slices.Sort(out)
	return out
}

// checkHandler holds that a probe or a hook says what to do, once. Exec, HTTP and TCP are what both have in common.
func checkHandler(p *path, m proto.Message, exec *corev1.ExecAction, get *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction, out *violations) {
	handlers := set(m)
	if len(handlers) == 0 {
		out.required(p, "must specify a handler type")
		return
	}
	for _, h := range handlers[1:] {
		out.forbidden(p.field(h), "may not specify more than 1 handler type")
	}
	if exec != nil && len(exec.GetCommand()) == 0 {
		out.required(p.field("exec").field("command"), "")
	}
	checkPort(p.field("httpGet").field("port"), get.GetPort(), out)
	checkPort(p.field("tcpSocket").field("port"), tcp.GetPort(), out)
	for i, h := range get.GetHttpHeaders() {
		if h.GetName() != "" { // else reported as required
			words(validation.IsHTTPHeaderName)(p.field("httpGet").field("httpHeaders").item(i).field("name"), h.GetName(), out)
		}
	}
}

// checkPort checks the number or the name of a port.
func checkPort(p *path, v *structpb.Value, out *violations) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		for _, message := range validation.IsValidPortNum(int(k.NumberValue)) {
			out.invalid(p, strconv.Itoa(int(k.NumberValue)), message)
		}
	case *structpb.Value_StringValue:
		words(validation.IsValidPortName)(p, k.StringValue, out)
	}
}

// checkProbes holds what a probe may say depending on what it is for.
func checkProbes(p *path, c *corev1.Container, out *violations) {
	for _, probe := range []struct {
		name  string
		probe *corev1.Probe
	}{{"livenessProbe", c.GetLivenessProbe()}, {"startupProbe", c.GetStartupProbe()}} {
		if n := probe.probe.GetSuccessThreshold(); n > 1 {
			out.invalid(p.field(probe.name).field("successThreshold"), strconv.Itoa(int(n)), "must be 1")
		}
	}
	if c.GetReadinessProbe() != nil && c.GetReadinessProbe().TerminationGracePeriodSeconds != nil {
		out.invalid(p.field("readinessProbe").field("terminationGracePeriodSeconds"),
			strconv.FormatInt(c.GetReadinessProbe().GetTerminationGracePeriodSeconds(), 10), "must not be set for readinessProbes")
	}
}

// checkInitContainers refuses what only a container that stays can have.
func checkInitContainers(p *path, s *corev1.PodSpec, out *violations) {
	for i, c := range s.GetInitContainers() {
		if c.GetRestartPolicy() == "Always" {
			continue
		}
		here := p.field("initContainers").item(i)
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"lifecycle", c.GetLifecycle() != nil}, {"livenessProbe", c.GetLivenessProbe() != nil},
			{"readinessProbe", c.GetReadinessProbe() != nil}, {"startupProbe", c.GetStartupProbe() != nil},
		} {
			if f.set {
				out.forbidden(here.field(f.name), "may not be set for init containers without restartPolicy=Always")
			}
		}
	}
}

func checkEnvFrom(p *path, e *corev1.EnvFromSource, out *violations) {
	if prefix := e.GetPrefix(); prefix != "" {
		words(validation.IsRelaxedEnvVarName)(p.field("prefix"), prefix, out)
	}
	switch len(set(e)) {
	case 0:
		out.invalid(p, `""`, "must specify one of: `configMapRef` or `secretRef`")
	case 1:
	default:
		out.invalid(p, `""`, "may not have more than one field specified at a time")
	}
}

var (
	envFields    = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
	volumeFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
	resources    = []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"}
)

// checkFieldPath refuses fields of a pod that its containers cannot be told.
func checkFieldPath(p *path, f *corev1.ObjectFieldSelector, allowed []string, out *violations) {
	name := f.GetFieldPath()
	if name == "" || slices.Contains(allowed, name) {
		return
	}
	base, key, ok := strings.Cut(strings.TrimSuffix(name, "']"), "['")
	if ok && strings.HasSuffix(name, "']") && (base == "metadata.annotations" || base == "metadata.labels") {
		words(validation.IsQualifiedName)(p.field("fieldPath"), strings.ToLower(key), out)
		return
	}
	out.unsupported(p.field("fieldPath"), strconv.Quote(name), allowed)
}

// checkResourceField refuses what is no resource of a container.
func checkResourceField(p *path, f *corev1.ResourceFieldSelector, out *violations) {
	name := f.GetResource()
	if name == "" || slices.Contains(resources, name) ||
		strings.HasPrefix(name, "limits.hugepages-") || strings.HasPrefix(name, "requests.hugepages-") {
		return
	}
	out.unsupported(p.field("resource"), strconv.Quote(name), resources)
}

func checkProfile(p *path, what, typ string, profile *string, out *violations) {
	switch {
	case typ == "Localhost" && (profile == nil || *profile == ""):
		out.required(p.field("localhostProfile"), "must be set when "+what+" type is Localhost")
	case typ != "Localhost" && profile != nil:
		out.invalid(p.field("localhostProfile"), strconv.Quote(*profile), "can only be set when "+what+" type is Localhost")
	}
}

func checkSecurityContext(p *path, s *corev1.SecurityContext, out *violations) {
	if s.GetPrivileged() && s.AllowPrivilegeEscalation != nil && !s.GetAllowPrivilegeEscalation() {
		out.invalid(p, "(securityContext)", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
	}
}

// checkNetwork holds DNS and namespaces of a pod together.
func checkNetwork(p *path, s *corev1.PodSpec, out *violations) {
	if s.GetShareProcessNamespace() && s.GetHostPid() {
		out.invalid(p.field("shareProcessNamespace"), "true", "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	dns := p.field("dnsConfig")
	switch {
	case s.GetDnsPolicy() != "None":
	case s.GetDnsConfig() == nil:
		out.required(dns, "must provide `dnsConfig` when `dnsPolicy` is None")
	case len(s.GetDnsConfig().GetNameservers()) == 0:
		out.required(dns.field("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
	}
	if n := len(s.GetDnsConfig().GetNameservers()); n > 3 {
		out.invalid(dns.field("nameservers"), "(nameservers)", "must not have more than 3 nameservers")
	}
	for i, alias := range s.GetHostAliases() {
		for j, name := range alias.GetHostnames() {
			words(validation.IsDNS1123Subdomain)(p.field("hostAliases").item(i).field("hostnames").item(j), name, out)
		}
	}
}

// checkClaims holds the devices that containers claim to those that the pod has.
func checkClaims(p *path, s *corev1.PodSpec, out *violations) {
	known := map[string]bool{}
	for _, c := range s.GetResourceClaims() {
		known[c.GetName()] = true
	}
	for _, l := range lists(s) {
		for i, c := range l.containers {
			for j, claim := range c.GetResources().GetClaims() {
				if claim.GetName() != "" && !known[claim.GetName()] {
					out.notFound(p.field(l.field).item(i).field("resources").field("claims").item(j).field("name"), strconv.Quote(claim.GetName()))
				}
			}
		}
	}
}

// checkClaimSource holds that a claim is of an object or of a template.
func checkClaimSource(p *path, claim, template *string, out *violations) {
	switch {
	case claim != nil && template != nil:
		out.invalid(p, "("+p.last()+")", "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
	case claim == nil && template == nil:
		out.invalid(p, "("+p.last()+")", "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
	}
}

// checkShare refuses to take away more than there is.
func checkShare(p *path, r *appsv1.RollingUpdateDeployment, out *violations) {
	text := r.GetMaxUnavailable().GetStringValue()
	if n, err := strconv.Atoi(strings.TrimSuffix(text, "%")); strings.HasSuffix(text, "%") && err == nil && n > 100 {
		out.invalid(p.field("maxUnavailable"), strconv.Quote(text), "must not be greater than 100%")
	}
}

// checkPodTemplate checks what options cannot say of a template's metadata.
func checkPodTemplate(p *path, t *corev1.PodTemplateSpec, out *violations) {
	if a := t.GetMetadata().GetAnnotations(); len(a) > 0 {
		annotations(p.field("metadata").field("annotations"), a, out)
	}
}

// checkResizePolicies refuses two policies for one resource.
func checkResizePolicies(p *path, c *corev1.Container, out *violations) {
	seen := map[string]bool{}
	for i, r := range c.GetResizePolicy() {
		if seen[r.GetResourceName()] {
			out.duplicate(p.field("resizePolicy").item(i), strconv.Quote(r.GetResourceName()))
		}
		seen[r.GetResourceName()] = true
	}
}

// checkHugePages holds that a container with huge pages has something to run on besides.
func checkHugePages(p *path, r *corev1.ResourceRequirements, out *violations) {
	huge, other := false, false
	for _, amounts := range []map[string]string{r.GetLimits(), r.GetRequests()} {
		for name := range amounts {
			huge = huge || strings.HasPrefix(name, "hugepages-")
			other = other || name == "cpu" || name == "memory"
		}
	}
	if huge && !other {
		out.forbidden(p, fmt.Sprintf("HugePages require %s or %s", "cpu", "memory"))
	}
}
