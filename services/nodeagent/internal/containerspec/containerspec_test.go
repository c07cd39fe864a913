package containerspec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/podconfig"
	"trireme.dev/services/nodeagent/internal/runtime"
)

var node = Node{Name: "n1", IPs: []string{"192.0.2.1", "2001:db8::1"}, CPUMillis: 8000, MemoryBytes: 16 << 30}

func object(name string) *metav1.ObjectMeta { return &metav1.ObjectMeta{Namespace: "ns", Name: name} }

func TestExpand(t *testing.T) {
	env := &Env{values: map[string]string{}}
	env.set("A", "1")
	env.set("B", "")
	for in, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(B)z": "x1yz", "$(NONE)": "$(NONE)", "$$(A)": "$(A)", "$$$(A)": "$1",
		"$A": "$A", "$(A": "$(A", "a$": "a$", "$$": "$", "$(A)$(A)": "11",
	} {
		if got := env.Expand(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	objects := podconfig.NewObjects(
		[]*corev1.ConfigMap{{Metadata: object("settings"), Data: map[string]string{"a": "1", "b": "2"}}},
		[]*corev1.Secret{{Metadata: object("keys"), Data: map[string][]byte{"k": []byte("s3")}}})
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	resource := func(name, divisor string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: name, Divisor: proto.String(divisor)}}
	}
	c := &corev1.Container{
		Name:      "main",
		Resources: &corev1.ResourceRequirements{Limits: map[string]string{"cpu": "1500m"}, Requests: map[string]string{"memory": "100Mi"}},
		EnvFrom: []*corev1.EnvFromSource{
			{Prefix: proto.String("P_"), ConfigMapRef: &corev1.ConfigMapEnvSource{Name: "settings"}},
			{SecretRef: &corev1.SecretEnvSource{Name: "absent", Optional: proto.Bool(true)}},
		},
		Env: []*corev1.EnvVar{
			{Name: "PLAIN", Value: proto.String("v")},
			{Name: "P_a", Value: proto.String("overridden $(PLAIN) $(LATER)")},
			{Name: "NODE", ValueFrom: field("spec.nodeName")},
			{Name: "LABEL", ValueFrom: field("metadata.labels['app']")},
			{Name: "IP", ValueFrom: field("status.podIP")},
			{Name: "HOSTS", ValueFrom: field("status.hostIPs")},
			{Name: "CPU", ValueFrom: resource("limits.cpu", "")},
			{Name: "CPU_MILLI", ValueFrom: resource("limits.cpu", "1m")},
			{Name: "MEM", ValueFrom: resource("requests.memory", "1Mi")},
			{Name: "NODE_MEM", ValueFrom: resource("limits.memory", "1Gi")},
			{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Name: "keys", Key: "k"}}},
			{Name: "NOT", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Name: "keys", Key: "x", Optional: proto.Bool(true)}}},
			{Name: "LATER", Value: proto.String("late")},
		},
	}
	pod := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "web"}},
		Spec:     &corev1.PodSpec{NodeName: proto.String("n1"), Containers: []*corev1.Container{c}},
	}
	env, err := Environment(pod, c, node, []string{"10.0.0.2"}, objects)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"P_a=overridden v $(LATER)", "P_b=2", "PLAIN=v", "NODE=n1", "LABEL=web", "IP=10.0.0.2", "HOSTS=192.0.2.1,2001:db8::1",
		"CPU=2", "CPU_MILLI=1500", "MEM=100", "NODE_MEM=16", "KEY=s3", "LATER=late",
	}
	if got := env.List(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEnvironmentNamesWhatIsMissing(t *testing.T) {
	objects := podconfig.NewObjects([]*corev1.ConfigMap{{Metadata: object("settings")}}, nil)
	for want, from := range map[string]*corev1.EnvVarSource{
		`configmap "absent" not found`:                 {ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Name: "absent", Key: "k"}},
		`secret "absent" not found`:                    {SecretKeyRef: &corev1.SecretKeySelector{Name: "absent", Key: "k"}},
		`couldn't find key k in ConfigMap ns/settings`: {ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Name: "settings", Key: "k"}},
		`unsupported fieldPath: spec.containers`:       {FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.containers"}},
		`unsupported container resource: limits`:       {ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits"}},
		`container other not found`:                    {ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", ContainerName: proto.String("other")}},
	} {
		c := &corev1.Container{Name: "main", Env: []*corev1.EnvVar{{Name: "V", ValueFrom: from}}}
		pod := &corev1.Pod{Metadata: object("p"), Spec: &corev1.PodSpec{Containers: []*corev1.Container{c}}}
		_, err := Environment(pod, c, node, nil, objects)
		var config *ConfigError
		if err == nil || err.Error() != want || !asConfig(err, &config) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func asConfig(err error, target **ConfigError) bool {
	return errors.As(err, target)
}

func withResources(requests, limits string) *corev1.Container {
	parse := func(s string) map[string]string {
		m := map[string]string{}
		for _, w := range strings.Fields(s) {
			k, v, _ := strings.Cut(w, "=")
			m[k] = v
		}
		return m
	}
	return &corev1.Container{Name: "c", Resources: &corev1.ResourceRequirements{Requests: parse(requests), Limits: parse(limits)}}
}

func TestResources(t *testing.T) {
	for _, tt := range []struct {
		requests, limits string
		qos              runtime.QOSClass
		want             runtime.Resources
	}{
		{qos: runtime.BestEffort, want: runtime.Resources{CPUShares: 2, OOMScoreAdj: 1000}},
		{
			limits: "cpu=2 memory=1Gi", qos: runtime.Guaranteed,
			want: runtime.Resources{CPUShares: 2048, CPUQuotaMicros: 200000, MemoryLimitBytes: 1 << 30, OOMScoreAdj: -997},
		},
		{
			requests: "cpu=500m memory=4Gi", qos: runtime.Burstable,
			want: runtime.Resources{CPUShares: 512, OOMScoreAdj: 750},
		},
		{
			requests: "cpu=1m", limits: "cpu=5m", qos: runtime.Burstable,
			want: runtime.Resources{CPUShares: 2, CPUQuotaMicros: 1000, OOMScoreAdj: 999},
		},
		{requests: "nvidia.com/gpu=1", limits: "nvidia.com/gpu=1", qos: runtime.BestEffort, want: runtime.Resources{CPUShares: 2, OOMScoreAdj: 1000}},
	} {
		c := withResources(tt.requests, tt.limits)
		pod := &corev1.Pod{Spec: &corev1.PodSpec{Containers: []*corev1.Container{c}}}
		spec := Container(pod, c, false, &Env{}, node)
		if spec.QOS != tt.qos || spec.Resources != tt.want {
			t.Errorf("%s / %s: got %s %+v, want %s %+v", tt.requests, tt.limits, spec.QOS, spec.Resources, tt.qos, tt.want)
		}
	}
}

func TestRequestsCountTheLargestInitContainer(t *testing.T) {
	pod := &corev1.Pod{Spec: &corev1.PodSpec{
		InitContainers: []*corev1.Container{withResources("cpu=3", ""), withResources("cpu=1 memory=1Gi", "")},
		Containers:     []*corev1.Container{withResources("cpu=1", ""), withResources("cpu=1", "memory=64Mi")},
	}}
	got := Requests(pod)
	if cpu, memory := got["cpu"], got["memory"]; cpu.Format() != "3" || memory.Format() != "1Gi" {
		t.Errorf("got cpu %s, memory %s", cpu, memory)
	}
}

func TestSidecarsRunBesideWhatFollowsThem(t *testing.T) {
	sidecar := withResources("cpu=1", "memory=100Mi")
	sidecar.RestartPolicy = proto.String("Always")
	pod := &corev1.Pod{Spec: &corev1.PodSpec{
		InitContainers: []*corev1.Container{withResources("cpu=2", "memory=150Mi"), sidecar, withResources("cpu=1500m", "memory=50Mi")},
		Containers:     []*corev1.Container{withResources("cpu=1", "memory=100Mi")},
		Overhead:       map[string]string{"cpu": "250m", "memory": "10Mi"},
	}}
	got := Requests(pod)
	if cpu, memory := got["cpu"], got["memory"]; cpu.Format() != "2750m" || memory.Format() != "210Mi" {
		t.Errorf("got cpu %s, memory %s; want the init container beside the sidecar, and both that stay", cpu.Format(), memory.Format())
	}
	if r := podResources(pod); r.MemoryLimitBytes != 210<<20 || r.CPUShares != 2816 || r.CPUQuotaMicros != 0 {
		t.Errorf("cgroup of the pod %+v", r)
	}
}

func TestSecurityOfTheContainerWins(t *testing.T) {
	c := &corev1.Container{Name: "c", SecurityContext: &corev1.SecurityContext{
		RunAsUser: proto.Int64(7), AllowPrivilegeEscalation: proto.Bool(false),
		Capabilities: &corev1.Capabilities{Add: []string{"CAP_NET_ADMIN"}, Drop: []string{"ALL"}},
	}}
	pod := &corev1.Pod{Spec: &corev1.PodSpec{
		Containers: []*corev1.Container{c}, SecurityContext: &corev1.PodSecurityContext{RunAsUser: proto.Int64(1), RunAsGroup: proto.Int64(2)},
	}}
	s := Container(pod, c, false, &Env{}, node).Security
	if *s.RunAsUser != 7 || *s.RunAsGroup != 2 || !s.NoNewPrivileges || s.AddCapabilities[0] != "NET_ADMIN" || s.DropCapabilities[0] != "ALL" {
		t.Errorf("got %+v", s)
	}
}

func TestSandbox(t *testing.T) {
	port := &corev1.ContainerPort{ContainerPort: 80, HostPort: proto.Int32(8080)}
	pod := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: strings.Repeat("a", 62) + "-b", Uid: "u"},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Ports: []*corev1.ContainerPort{port, {ContainerPort: 81}}}}},
	}
	s := Sandbox(pod, node)
	if s.Hostname != strings.Repeat("a", 62) || len(s.HostPorts) != 1 || s.HostPorts[0] != (runtime.HostPort{HostPort: 8080, ContainerPort: 80, Protocol: "TCP"}) {
		t.Errorf("got %+v", s)
	}
	pod.Spec.HostNetwork = proto.Bool(true)
	if s := Sandbox(pod, node); s.Hostname != "n1" || len(s.HostPorts) != 0 {
		t.Errorf("host network: %+v", s)
	}
}
