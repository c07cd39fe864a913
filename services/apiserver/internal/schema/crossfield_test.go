package schema_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// wrong is an object with one mistake, and what is to be said of it.
type wrong struct {
	want string
	obj  proto.Message
	old  proto.Message // for rules of updates
}

func podWith(edit func(*corev1.PodSpec)) proto.Message { return pod(edit) }

func inContainer(edit func(*corev1.Container)) proto.Message {
	return pod(func(s *corev1.PodSpec) { edit(s.Containers[0]) })
}

func withProbe(p *corev1.Probe) proto.Message {
	return inContainer(func(c *corev1.Container) { c.LivenessProbe = p })
}

func withVolume(v *corev1.Volume) proto.Message {
	return pod(func(s *corev1.PodSpec) { v.Name = "v"; s.Volumes = []*corev1.Volume{v} })
}

func withTerm(t *corev1.NodeSelectorTerm) proto.Message {
	return pod(func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []*corev1.NodeSelectorTerm{t}},
		}}
	})
}

func expression(key, operator string, values ...string) *corev1.NodeSelectorTerm {
	return &corev1.NodeSelectorTerm{MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func service(edit func(*corev1.ServiceSpec)) proto.Message {
	s := &corev1.Service{Metadata: meta(), Spec: &corev1.ServiceSpec{Ports: []*corev1.ServicePort{{Port: 80}}}}
	edit(s.Spec)
	return s
}

func withMeta(edit func(*metav1.ObjectMeta)) proto.Message {
	m := meta()
	edit(m)
	return &corev1.ConfigMap{Metadata: m}
}

func node(edit func(*corev1.NodeSpec)) proto.Message {
	n := &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "a"}, Spec: &corev1.NodeSpec{}}
	edit(n.Spec)
	return n
}

func group(edit func(*schedulingv1.PodGroupSpec)) proto.Message {
	g := &schedulingv1.PodGroup{Metadata: meta(), Spec: &schedulingv1.PodGroupSpec{
		SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{Gang: &schedulingv1.GangSchedulingPolicy{MinCount: 1}},
	}}
	edit(g.Spec)
	return g
}

func claim(edit func(*corev1.PersistentVolumeClaimSpec)) proto.Message {
	c := &corev1.PersistentVolumeClaim{Metadata: meta(), Spec: &corev1.PersistentVolumeClaimSpec{
		AccessModes: []string{"ReadWriteOnce"},
		Resources:   &corev1.VolumeResourceRequirements{Requests: map[string]string{"storage": "1Gi"}},
	}}
	edit(c.Spec)
	return c
}

func persistentVolume(edit func(*corev1.PersistentVolumeSpec)) proto.Message {
	v := &corev1.PersistentVolume{Metadata: &metav1.ObjectMeta{Name: "a"}, Spec: &corev1.PersistentVolumeSpec{
		AccessModes: []string{"ReadWriteOnce"},
		Capacity:    map[string]string{"storage": "1Gi"},
		HostPath:    &corev1.HostPathVolumeSource{Path: "/data"},
	}}
	edit(v.Spec)
	return v
}

func resourcesOf(requests, limits map[string]string) proto.Message {
	return inContainer(func(c *corev1.Container) {
		c.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
	})
}

const c0 = "spec.containers[0]"

// crossField holds one mistake for every rule that looks at more than one field, and the names and amounts of
// Kubernetes that options cannot say. The texts are those that users of Kubernetes know.
func crossField() []wrong {
	exec := &corev1.ExecAction{Command: []string{"true"}}
	str, num := proto.String, proto.Int32
	term := "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
	selector := func(operator string, values ...string) proto.Message {
		return deployment(func(s *appsv1.DeploymentSpec) {
			s.Selector = &metav1.LabelSelector{MatchExpressions: []*metav1.LabelSelectorRequirement{{Key: "app", Operator: operator, Values: values}}}
		})
	}
	return []wrong{
		// Metadata.
		{want: `metadata.finalizers[0]: Invalid value: "hold": name is neither a standard finalizer name nor is it fully qualified`, obj: withMeta(func(m *metav1.ObjectMeta) { m.Finalizers = []string{"hold"} })},
		{want: "metadata.finalizers: Invalid value: (finalizers): finalizer orphan and foregroundDeletion cannot be both set", obj: withMeta(func(m *metav1.ObjectMeta) { m.Finalizers = []string{"orphan", "foregroundDeletion"} })},
		{want: "metadata.annotations: Too long: may not be more than 262144 bytes", obj: withMeta(func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)} })},
		{want: `metadata.annotations: Invalid value: "a/b/c": a valid label key`, obj: withMeta(func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{"a/b/c": ""} })},
		{want: `metadata.labels: Invalid value: "` + strings.Repeat("k", 64) + `": name part must be no more than 63`, obj: withMeta(func(m *metav1.ObjectMeta) { m.Labels = map[string]string{strings.Repeat("k", 64): ""} })},
		{want: `metadata.labels: Invalid value: "` + strings.Repeat("k", 254) + `/a": prefix part must be no more than 253`, obj: withMeta(func(m *metav1.ObjectMeta) { m.Labels = map[string]string{strings.Repeat("k", 254) + "/a": ""} })},
		{want: `metadata.labels[a]: Invalid value: "` + strings.Repeat("v", 64) + `": must be no more than 63`, obj: withMeta(func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": strings.Repeat("v", 64)} })},
		{want: `metadata.name: Invalid value: "` + strings.Repeat("n", 254) + `": must be no more than 253`, obj: withMeta(func(m *metav1.ObjectMeta) { m.Name = strings.Repeat("n", 254) })},
		{want: `metadata.name: Invalid value: "1a": a DNS-1035 label must`, obj: &corev1.Service{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "1a"}, Spec: &corev1.ServiceSpec{Ports: []*corev1.ServicePort{{Port: 1}}}}},
		{want: `metadata.name: Invalid value: "a.b": must not contain dots`, obj: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "a.b"}}},
		{want: `metadata.generateName: Invalid value: "A-": a lowercase RFC 1123 subdomain`, obj: withMeta(func(m *metav1.ObjectMeta) { m.GenerateName = "A-" })},
		{want: "metadata.ownerReferences: Invalid value: (ownerReferences): Only one reference can have Controller set to true", obj: withMeta(func(m *metav1.ObjectMeta) {
			for _, uid := range []string{"1", "2"} {
				m.OwnerReferences = append(m.OwnerReferences, &metav1.OwnerReference{ApiVersion: "v1", Kind: "Pod", Name: "p", Uid: uid, Controller: proto.Bool(true)})
			}
		})},
		{want: `spec.template.metadata.annotations: Invalid value: "bad key": name part must consist of`, obj: deployment(func(s *appsv1.DeploymentSpec) { s.Template.Metadata.Annotations = map[string]string{"bad key": "x"} })},

		// Selectors.
		{want: "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'", obj: selector("In")},
		{want: "spec.selector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'", obj: selector("Exists", "web")},
		{want: "spec.selector.matchLabels[app]: Invalid value: \"not valid\": a valid label must be", obj: deployment(func(s *appsv1.DeploymentSpec) {
			s.Selector.MatchLabels["app"] = "not valid"
			s.Template.Metadata.Labels = nil
		})},

		// Probes, hooks.
		{want: c0 + ".livenessProbe: Required value: must specify a handler type", obj: withProbe(&corev1.Probe{})},
		{want: c0 + ".livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type", obj: withProbe(&corev1.Probe{Exec: exec, TcpSocket: &corev1.TCPSocketAction{Port: structpb.NewNumberValue(1)}})},
		{want: c0 + ".livenessProbe.exec.command: Required value", obj: withProbe(&corev1.Probe{Exec: &corev1.ExecAction{}})},
		{want: c0 + ".livenessProbe.tcpSocket.port: Invalid value: 70000: must be between 1 and 65535, inclusive", obj: withProbe(&corev1.Probe{TcpSocket: &corev1.TCPSocketAction{Port: structpb.NewNumberValue(70000)}})},
		{want: c0 + `.livenessProbe.httpGet.port: Invalid value: "Web_1": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`, obj: withProbe(&corev1.Probe{HttpGet: &corev1.HTTPGetAction{Port: structpb.NewStringValue("Web_1")}})},
		{want: c0 + `.livenessProbe.httpGet.httpHeaders[0].name: Invalid value: "a b": a valid HTTP header`, obj: withProbe(&corev1.Probe{HttpGet: &corev1.HTTPGetAction{Port: structpb.NewNumberValue(1), HttpHeaders: []*corev1.HTTPHeader{{Name: "a b"}}}})},
		{want: c0 + ".livenessProbe.successThreshold: Invalid value: 2: must be 1", obj: withProbe(&corev1.Probe{Exec: exec, SuccessThreshold: num(2)})},
		{want: c0 + ".readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes", obj: inContainer(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{Exec: exec, TerminationGracePeriodSeconds: proto.Int64(5)}
		})},
		{want: c0 + ".lifecycle.preStop: Required value: must specify a handler type", obj: inContainer(func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}} })},
		{want: "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always", obj: pod(func(s *corev1.PodSpec) {
			s.InitContainers = []*corev1.Container{{Name: "i", Image: "i", ReadinessProbe: &corev1.Probe{Exec: exec}}}
		})},

		// Environment.
		{want: c0 + ".env[0].valueFrom: Invalid value: (valueFrom): may not be specified when `value` is not empty", obj: inContainer(func(c *corev1.Container) {
			c.Env = []*corev1.EnvVar{{Name: "A", Value: str("x"), ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
		})},
		{want: c0 + ".env[0].valueFrom: Invalid value: (valueFrom): must specify exactly one of", obj: inContainer(func(c *corev1.Container) { c.Env = []*corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{}}} })},
		{want: c0 + `.env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "spec.secret": supported values: "metadata.name"`, obj: inContainer(func(c *corev1.Container) {
			c.Env = []*corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.secret"}}}}
		})},
		{want: c0 + `.env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: "limits.cpu"`, obj: inContainer(func(c *corev1.Container) {
			c.Env = []*corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.gpu"}}}}
		})},
		{want: c0 + ".envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`", obj: inContainer(func(c *corev1.Container) { c.EnvFrom = []*corev1.EnvFromSource{{}} })},
		{want: c0 + ".envFrom[0]: Invalid value: \"\": may not have more than one field specified at a time", obj: inContainer(func(c *corev1.Container) {
			c.EnvFrom = []*corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{Name: "a"}, SecretRef: &corev1.SecretEnvSource{Name: "a"}}}
		})},

		// Resources.
		{want: c0 + `.resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0`, obj: resourcesOf(nil, map[string]string{"cpu": "-1"})},
		{want: c0 + `.resources.limits[cpu]: Invalid value: "1e999999999": must be a quantity`, obj: resourcesOf(nil, map[string]string{"cpu": "1e999999999"})},
		{want: c0 + ".resources: Forbidden: HugePages require cpu or memory", obj: resourcesOf(nil, map[string]string{"hugepages-2Mi": "2Mi"})},
		{want: c0 + `.resources.claims[0].name: Not found: "gpu"`, obj: inContainer(func(c *corev1.Container) {
			c.Resources = &corev1.ResourceRequirements{Claims: []*corev1.ResourceClaim{{Name: "gpu"}}}
		})},
		{want: "spec.resourceClaims[0]: Invalid value: (resourceClaims): must specify one of: `resourceClaimName`, `resourceClaimTemplateName`", obj: pod(func(s *corev1.PodSpec) { s.ResourceClaims = []*corev1.PodResourceClaim{{Name: "g"}} })},
		{want: c0 + `.resizePolicy[1]: Duplicate value: "cpu"`, obj: inContainer(func(c *corev1.Container) {
			for range 2 {
				c.ResizePolicy = append(c.ResizePolicy, &corev1.ContainerResizePolicy{ResourceName: "cpu", RestartPolicy: "NotRequired"})
			}
		})},
		{want: `status.capacity[cpu]: Invalid value: "-4": must be greater than or equal to 0`, obj: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "a"}, Status: &corev1.NodeStatus{Capacity: map[string]string{"cpu": "-4"}}}},

		// Ports.
		{want: c0 + `.ports[1].name: Duplicate value: "web"`, obj: inContainer(func(c *corev1.Container) {
			c.Ports = []*corev1.ContainerPort{{Name: str("web"), ContainerPort: 1}, {Name: str("web"), ContainerPort: 2}}
		})},
		{want: c0 + `.ports[1].hostPort: Duplicate value: "TCP//80"`, obj: inContainer(func(c *corev1.Container) {
			c.Ports = []*corev1.ContainerPort{{HostPort: num(80), ContainerPort: 1}, {HostPort: num(80), ContainerPort: 2}}
		})},

		// Volumes.
		{want: "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type", obj: withVolume(&corev1.Volume{EmptyDir: &corev1.EmptyDirVolumeSource{}, HostPath: &corev1.HostPathVolumeSource{Path: "/a"}})},
		{want: `spec.volumes[0].hostPath.path: Invalid value: "/a/../b": must not contain '..'`, obj: withVolume(&corev1.Volume{HostPath: &corev1.HostPathVolumeSource{Path: "/a/../b"}})},
		{want: "spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity", obj: withVolume(&corev1.Volume{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: str("-1Gi")}})},
		{want: `spec.volumes[0].configMap.items[0].path: Invalid value: "../a": must not contain '..'`, obj: withVolume(&corev1.Volume{ConfigMap: &corev1.ConfigMapVolumeSource{Name: "c", Items: []*corev1.KeyToPath{{Key: "k", Path: "../a"}}}})},
		{want: `spec.volumes[0].configMap.items[0].path: Invalid value: "/a": must be a relative path`, obj: withVolume(&corev1.Volume{ConfigMap: &corev1.ConfigMapVolumeSource{Name: "c", Items: []*corev1.KeyToPath{{Key: "k", Path: "/a"}}}})},
		{want: `spec.volumes[0].configMap.items[0].path: Invalid value: "..a": must not start with '..'`, obj: withVolume(&corev1.Volume{ConfigMap: &corev1.ConfigMapVolumeSource{Name: "c", Items: []*corev1.KeyToPath{{Key: "k", Path: "..a"}}}})},
		{want: "spec.volumes[0].downwardAPI.items[0]: Required value: one of fieldRef and resourceFieldRef is required", obj: withVolume(&corev1.Volume{DownwardApi: &corev1.DownwardAPIVolumeSource{Items: []*corev1.DownwardAPIVolumeFile{{Path: "a"}}}})},
		{want: "spec.volumes[0].downwardAPI.items[0].resourceFieldRef.containerName: Required value", obj: withVolume(&corev1.Volume{DownwardApi: &corev1.DownwardAPIVolumeSource{Items: []*corev1.DownwardAPIVolumeFile{{Path: "a", ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}}}})},
		{want: "spec.volumes[0].projected.sources[0].secret: Forbidden: may not specify more than 1 volume type per source", obj: withVolume(&corev1.Volume{Projected: &corev1.ProjectedVolumeSource{Sources: []*corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{Name: "a"}, Secret: &corev1.SecretProjection{Name: "a"}}}}})},
		{want: `spec.volumes[0].projected.sources[1].secret.items[0].path: Invalid value: "x": conflicting duplicate paths`, obj: withVolume(&corev1.Volume{Projected: &corev1.ProjectedVolumeSource{Sources: []*corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{Name: "a", Items: []*corev1.KeyToPath{{Key: "k", Path: "x"}}}},
			{Secret: &corev1.SecretProjection{Name: "a", Items: []*corev1.KeyToPath{{Key: "k", Path: "x"}}}},
		}}})},
		{want: c0 + `.volumeMounts[0].subPathExpr: Invalid value: "b": subPathExpr and subPath are mutually exclusive`, obj: pod(func(s *corev1.PodSpec) {
			s.Volumes = []*corev1.Volume{{Name: "v"}}
			s.Containers[0].VolumeMounts = []*corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: str("a"), SubPathExpr: str("b")}}
		})},
		{want: c0 + `.volumeDevices[0].name: Not found: "v"`, obj: inContainer(func(c *corev1.Container) { c.VolumeDevices = []*corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}} })},

		// Placement.
		{want: term + ".matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'", obj: withTerm(expression("a", "In"))},
		{want: term + ".matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'", obj: withTerm(expression("a", "Exists", "b"))},
		{want: term + ".matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'", obj: withTerm(expression("a", "Gt", "1", "2"))},
		{want: term + ".matchExpressions[0].values: Invalid value: (values): must be an integer when `operator` is 'Lt' or 'Gt'", obj: withTerm(expression("a", "Gt", "many"))},
		{want: term + `.matchExpressions[0].key: Invalid value: "bad key": name part must consist of`, obj: withTerm(expression("bad key", "Exists"))},
		{want: term + `.matchExpressions[0].values[0]: Invalid value: "not valid": a valid label`, obj: withTerm(expression("a", "In", "not valid"))},
		{want: term + `.matchFields[0].key: Invalid value: "spec.x": not a valid field selector key`, obj: withTerm(&corev1.NodeSelectorTerm{MatchFields: []*corev1.NodeSelectorRequirement{{Key: "spec.x", Operator: "In", Values: []string{"a"}}}})},
		{want: term + `.matchFields[0].operator: Invalid value: "Exists": not a valid selector operator`, obj: withTerm(&corev1.NodeSelectorTerm{MatchFields: []*corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "Exists"}}})},
		{want: "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set", obj: pod(func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{TopologyKey: "zone", MatchLabelKeys: []string{"a"}}}}}
		})},
		{want: "spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway", obj: pod(func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: "ScheduleAnyway", MinDomains: num(2)}}
		})},
		{want: "spec.tolerations[0].operator: Invalid value: \"Exists\": value must be empty when `operator` is 'Exists'", obj: pod(func(s *corev1.PodSpec) {
			s.Tolerations = []*corev1.Toleration{{Key: str("a"), Operator: str("Exists"), Value: str("b")}}
		})},
		{want: "spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set", obj: pod(func(s *corev1.PodSpec) {
			s.Tolerations = []*corev1.Toleration{{Key: str("a"), Operator: str("Exists"), Effect: str("NoSchedule"), TolerationSeconds: proto.Int64(1)}}
		})},
		{want: `spec.taints[0].value: Invalid value: "not valid": a valid label`, obj: node(func(s *corev1.NodeSpec) {
			s.Taints = []*corev1.Taint{{Key: "a", Effect: "NoSchedule", Value: str("not valid")}}
		})},
		{want: `spec.taints[1]: Duplicate value: {key: "a", effect: "NoSchedule"}`, obj: node(func(s *corev1.NodeSpec) {
			s.Taints = []*corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoSchedule", Value: str("b")}}
		})},

		// Pods.
		{want: "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared", obj: pod(func(s *corev1.PodSpec) {
			s.NodeName, s.SchedulingGates = str("n"), []*corev1.PodSchedulingGate{{Name: "a"}}
		})},
		{want: "spec.hostNetwork: Forbidden: when `hostUsers` is false", obj: pod(func(s *corev1.PodSpec) { s.HostNetwork, s.HostUsers = proto.Bool(true), proto.Bool(false) })},
		{want: "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled", obj: pod(func(s *corev1.PodSpec) { s.ShareProcessNamespace, s.HostPid = proto.Bool(true), proto.Bool(true) })},
		{want: "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None", obj: pod(func(s *corev1.PodSpec) { s.DnsPolicy = str("None") })},
		{want: "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost", obj: pod(func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "Localhost"}}
		})},
		{want: c0 + ".securityContext: Invalid value: (securityContext): cannot set `allowPrivilegeEscalation` to false and `privileged` to true", obj: inContainer(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{Privileged: proto.Bool(true), AllowPrivilegeEscalation: proto.Bool(false)}
		})},

		// Other kinds.
		{want: "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds", obj: deployment(func(s *appsv1.DeploymentSpec) { s.ProgressDeadlineSeconds, s.MinReadySeconds = num(5), num(5) })},
		{want: "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'", obj: deployment(func(s *appsv1.DeploymentSpec) {
			s.Strategy = &appsv1.DeploymentStrategy{Type: str("Recreate"), RollingUpdate: &appsv1.RollingUpdateDeployment{}}
		})},
		{want: "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0", obj: deployment(func(s *appsv1.DeploymentSpec) {
			s.Strategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: structpb.NewStringValue("0%"), MaxUnavailable: structpb.NewNumberValue(0)}}
		})},
		{want: `spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`, obj: deployment(func(s *appsv1.DeploymentSpec) {
			s.Strategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: structpb.NewStringValue("101%")}}
		})},
		{want: "spec.schedulingPolicy: Invalid value: (schedulingPolicy): must specify exactly one of: `basic`, `gang`", obj: group(func(s *schedulingv1.PodGroupSpec) { s.SchedulingPolicy.Basic = &schedulingv1.BasicSchedulingPolicy{} })},
		{want: "spec.disruptionMode: Invalid value: (disruptionMode): must specify exactly one of: `single`, `all`", obj: group(func(s *schedulingv1.PodGroupSpec) { s.DisruptionMode = &schedulingv1.DisruptionMode{} })},
		{want: "spec: Invalid value: (spec): must specify exactly one of: `podGroupTemplates`, `compositePodGroupTemplates`", obj: &schedulingv1.Workload{Metadata: meta(), Spec: &schedulingv1.WorkloadSpec{}}},
		{want: "spec.resources: Required value: must say how much storage is wanted", obj: claim(func(s *corev1.PersistentVolumeClaimSpec) { s.Resources = nil })},
		{want: "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes", obj: claim(func(s *corev1.PersistentVolumeClaimSpec) { s.AccessModes = append(s.AccessModes, "ReadWriteOncePod") })},
		{want: "spec: Invalid value: (spec): must specify exactly one volume type", obj: persistentVolume(func(s *corev1.PersistentVolumeSpec) { s.HostPath = nil })},
		{want: "spec.capacity: Required value: must say how much storage there is", obj: persistentVolume(func(s *corev1.PersistentVolumeSpec) { s.Capacity = map[string]string{"cpu": "1"} })},
		{want: "spec.nodeAffinity: Required value: Local volume requires node affinity", obj: persistentVolume(func(s *corev1.PersistentVolumeSpec) {
			s.HostPath, s.Local = nil, &corev1.LocalVolumeSource{Path: "/disk"}
		})},
		{want: "spec.preferredHolder: Forbidden: may only be specified when `strategy` is defined", obj: &coordinationv1.Lease{Metadata: meta(), Spec: &coordinationv1.LeaseSpec{PreferredHolder: str("a")}}},
		{want: `involvedObject.namespace: Invalid value: "other": does not match event.namespace`, obj: &corev1.Event{Metadata: meta(), InvolvedObject: &corev1.ObjectReference{Namespace: str("other")}}},
		{want: `data[a]: Invalid value: "a": duplicate of key present in binaryData`, obj: &corev1.ConfigMap{Metadata: meta(), Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"a": nil}}},
		{want: "data: Too long: may not be more than 1048576 bytes", obj: &corev1.ConfigMap{Metadata: meta(), Data: map[string]string{"a": strings.Repeat("x", 1<<20+1)}}},
		{want: "data: Too long: may not be more than 1048576 bytes", obj: &corev1.Secret{Metadata: meta(), Data: map[string][]byte{"a": make([]byte, 1<<20+1)}}},
		{want: "data[tls.key]: Required value", obj: &corev1.Secret{Metadata: meta(), Type: str("kubernetes.io/tls"), Data: map[string][]byte{"tls.crt": []byte("x")}}},
		{want: "spec.ports: Required value", obj: service(func(s *corev1.ServiceSpec) { s.Ports = nil })},
		{want: "spec.ports[1].name: Required value", obj: service(func(s *corev1.ServiceSpec) {
			s.Ports = []*corev1.ServicePort{{Port: 80, Name: str("a")}, {Port: 81}}
		})},
		{want: `spec.ports[1].name: Duplicate value: "a"`, obj: service(func(s *corev1.ServiceSpec) {
			s.Ports = []*corev1.ServicePort{{Port: 80, Name: str("a")}, {Port: 81, Name: str("a")}}
		})},
		{want: "spec.externalName: Required value", obj: service(func(s *corev1.ServiceSpec) { s.Type = str("ExternalName") })},
		{want: `spec.clusterIP: Invalid value: "10.0": must be a valid IP address`, obj: service(func(s *corev1.ServiceSpec) { s.ClusterIp = str("10.0") })},
		{want: "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'", obj: service(func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = num(30000) })},

		// Updates.
		{want: "immutable: Forbidden: field is immutable when `immutable` is set", old: &corev1.ConfigMap{Metadata: meta(), Immutable: proto.Bool(true)}, obj: &corev1.ConfigMap{Metadata: meta()}},
		{want: "data: Forbidden: field is immutable when `immutable` is set", old: &corev1.ConfigMap{Metadata: meta(), Immutable: proto.Bool(true)}, obj: &corev1.ConfigMap{Metadata: meta(), Immutable: proto.Bool(true), Data: map[string]string{"a": "1"}}},
		{want: "immutable: Forbidden: field is immutable when `immutable` is set", old: &corev1.Secret{Metadata: meta(), Immutable: proto.Bool(true)}, obj: &corev1.Secret{Metadata: meta()}},
		{want: "data: Forbidden: field is immutable when `immutable` is set", old: &corev1.Secret{Metadata: meta(), Immutable: proto.Bool(true)}, obj: &corev1.Secret{Metadata: meta(), Immutable: proto.Bool(true), Data: map[string][]byte{"a": nil}}},
		{want: "spec.podCIDR: Forbidden: node updates may not change podCIDR except from \"\" to valid", old: node(func(s *corev1.NodeSpec) { s.PodCidr = str("10.0.0.0/24") }), obj: node(func(s *corev1.NodeSpec) { s.PodCidr = str("10.0.1.0/24") })},
		{want: "spec.podCIDR: Forbidden: node updates may not change podCIDR", old: node(func(s *corev1.NodeSpec) { s.PodCidr = str("10.0.0.0/24") }), obj: &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "a"}}},
		{want: "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid", old: node(func(s *corev1.NodeSpec) { s.ProviderId = str("a://b") }), obj: node(func(s *corev1.NodeSpec) { s.ProviderId = str("a://c") })},
	}
}

func TestCrossFieldRules(t *testing.T) {
	c := compiler(t)
	said := map[string]bool{}
	for _, w := range crossField() {
		k := kind.Of(w.obj.ProtoReflect().Type())
		s, err := c.Compile(k)
		if err != nil {
			t.Fatal(err)
		}
		s.Default(w.obj)
		var got []apierr.Violation
		if w.old != nil {
			s.Default(w.old)
			got = s.ValidateUpdate(w.obj, w.old)
		} else {
			got = s.ValidateCreate(w.obj)
		}
		if len(got) != 1 || !strings.HasPrefix(got[0].String(), w.want) {
			t.Errorf("want %s\ngot  %v", w.want, got)
		}
		for _, v := range got {
			said[k.Name+" "+v.Message] = true
		}
	}
	// Every rule in CEL is broken by a case above: one that nothing breaks may be true of everything.
	heard := func(text string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(said)), func(s string) bool { return strings.Contains(s, text) })
	}
	for _, k := range kind.Builtin().All() {
		everyRule(k.Message.Descriptor(), map[protoreflect.FullName]bool{}, func(d protoreflect.MessageDescriptor, r *metav1.Rule) {
			if !strings.HasPrefix(string(d.FullName()), "trireme.core.") && !strings.HasPrefix(string(d.FullName()), "trireme.apps.") &&
				!strings.HasPrefix(string(d.FullName()), "trireme.meta.") && !strings.HasPrefix(string(d.FullName()), "trireme.scheduling.v1.") {
				return // younger groups have tests of their own
			}
			if !heard(r.GetMessage()) {
				t.Errorf("nothing here breaks the rule of %s that says %q", d.FullName(), r.GetMessage())
			}
		})
	}
}

func everyRule(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool, fn func(protoreflect.MessageDescriptor, *metav1.Rule)) {
	if seen[d.FullName()] {
		return
	}
	seen[d.FullName()] = true
	rules, _ := proto.GetExtension(d.Options(), metav1.E_Rules).([]*metav1.Rule)
	for _, r := range rules {
		fn(d, r)
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		if fd.IsMap() {
			fd = fd.MapValue()
		}
		if fd.Message() != nil && fd.Message().ParentFile().Package() != "google.protobuf" {
			everyRule(fd.Message(), seen, fn)
		}
	}
}

// What Kubernetes accepts, however odd, is accepted.
func TestAcceptedAsInKubernetes(t *testing.T) {
	str := proto.String
	c := compiler(t)
	for name, obj := range map[string]proto.Message{
		"a variable twice": inContainer(func(c *corev1.Container) {
			c.Env = []*corev1.EnvVar{{Name: "A", Value: str("1")}, {Name: "A", Value: str("2")}}
		}),
		"a port twice": inContainer(func(c *corev1.Container) {
			c.Ports = []*corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 80}}
		}),
		"a pull secret twice": podWith(func(s *corev1.PodSpec) {
			s.ImagePullSecrets = []*corev1.LocalObjectReference{{Name: str("a")}, {Name: str("a")}}
		}),
		"an owner twice": withMeta(func(m *metav1.ObjectMeta) {
			o := &metav1.OwnerReference{ApiVersion: "v1", Kind: "Pod", Name: "p", Uid: "1"}
			m.OwnerReferences = []*metav1.OwnerReference{o, o}
		}),
		"environment with dots and spaces": inContainer(func(c *corev1.Container) { c.Env = []*corev1.EnvVar{{Name: "a.b c"}} }),
		"a label of one's own": podWith(func(s *corev1.PodSpec) {
			s.Containers[0].Env = []*corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app.io/x']"}}}}
		}),
		"exponents":                     resourcesOf(nil, map[string]string{"memory": "1e9", "cpu": "0.0001"}),
		"a whole device in thousandths": resourcesOf(nil, map[string]string{"nvidia.com/gpu": "2000m"}),
		"annotations in capitals":       withMeta(func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{"Example.COM/Key": "x"} }),
		"a selector that matches all": podWith(func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []*corev1.NodeSelectorTerm{{}}}}}
		}),
		"a headless service without ports": service(func(s *corev1.ServiceSpec) { s.ClusterIp, s.Ports = str("None"), nil }),
		"a sidecar with probes": podWith(func(s *corev1.PodSpec) {
			s.InitContainers = []*corev1.Container{{Name: "i", Image: "i", RestartPolicy: str("Always"), StartupProbe: &corev1.Probe{Exec: &corev1.ExecAction{Command: []string{"x"}}}}}
		}),
		"one host port on two addresses": inContainer(func(c *corev1.Container) {
			c.Ports = []*corev1.ContainerPort{{ContainerPort: 1, HostPort: proto.Int32(80), HostIp: str("10.0.0.1")}, {ContainerPort: 2, HostPort: proto.Int32(80), HostIp: str("10.0.0.2")}}
		}),
		"255 characters of values": withMeta(func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": strings.Repeat("v", 63), "b": ""} }),
	} {
		s, err := c.Compile(kind.Of(obj.ProtoReflect().Type()))
		if err != nil {
			t.Fatal(err)
		}
		s.Default(obj)
		if v := s.ValidateCreate(obj); len(v) > 0 {
			t.Errorf("%s: refused: %v", name, fmt.Sprint(v))
		}
	}
}
