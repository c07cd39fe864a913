package schema_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"trireme.dev/client/kind"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/apiserver/internal/schema"
)

func compiler(t testing.TB) *schema.Compiler {
	t.Helper()
	c, err := schema.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func compile(t *testing.T, m proto.Message) *schema.Schema {
	t.Helper()
	s, err := compiler(t).Compile(kind.Of(m.ProtoReflect().Type()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryKindCompiles(t *testing.T) {
	c := compiler(t)
	for _, k := range kind.Builtin().All() {
		if _, err := c.Compile(k); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
}

func meta() *metav1.ObjectMeta { return &metav1.ObjectMeta{Namespace: "default", Name: "a"} }

func pod(edit func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{Metadata: meta(), Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "app:1"}}}}
	if edit != nil {
		edit(p.Spec)
	}
	return p
}

func TestPodDefaults(t *testing.T) {
	s := compile(t, &corev1.Pod{})
	p := pod(func(s *corev1.PodSpec) {
		s.HostNetwork = proto.Bool(true)
		s.EnableServiceLinks = proto.Bool(false)
		s.TerminationGracePeriodSeconds = proto.Int64(0)
		s.Volumes = []*corev1.Volume{{Name: "v"}}
		s.Containers[0].Ports = []*corev1.ContainerPort{{ContainerPort: 80}}
		s.Containers[0].Resources = &corev1.ResourceRequirements{Limits: map[string]string{"cpu": "2", "nvidia.com/gpu": "1"}, Requests: map[string]string{"cpu": "1"}}
	})
	s.Default(p)
	c := p.Spec.Containers[0]
	for name, ok := range map[string]bool{
		"restartPolicy":         p.Spec.GetRestartPolicy() == "Always",
		"schedulerName":         p.Spec.GetSchedulerName() == "default-scheduler",
		"securityContext":       p.Spec.SecurityContext != nil,
		"explicit false stays":  !p.Spec.GetEnableServiceLinks(),
		"explicit zero stays":   p.Spec.GetTerminationGracePeriodSeconds() == 0,
		"imagePullPolicy":       c.GetImagePullPolicy() == "IfNotPresent",
		"volume is an emptyDir": p.Spec.Volumes[0].EmptyDir != nil,
		"hostPort":              c.Ports[0].GetHostPort() == 80,
		"protocol":              c.Ports[0].GetProtocol() == "TCP",
		"request given stays":   c.Resources.Requests["cpu"] == "1",
		"request from limit":    c.Resources.Requests["nvidia.com/gpu"] == "1",
	} {
		if !ok {
			t.Errorf("%s: %v", name, p.Spec)
		}
	}
	if v := s.ValidateCreate(p); len(v) > 0 {
		t.Fatalf("a sound pod is refused: %v", v)
	}
	once := proto.Clone(p)
	s.Default(p)
	if !proto.Equal(once, p) {
		t.Fatal("defaulting twice is not the same as once")
	}
	for image, want := range map[string]string{
		"app": "Always", "app:latest": "Always", "host:5000/app": "Always", "host:5000/app:1": "IfNotPresent",
		"app@sha256:0123": "IfNotPresent",
	} {
		p := pod(func(s *corev1.PodSpec) { s.Containers[0].Image = image })
		s.Default(p)
		if got := p.Spec.Containers[0].GetImagePullPolicy(); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestPodViolations(t *testing.T) {
	s := compile(t, &corev1.Pod{})
	for want, edit := range map[string]func(*corev1.PodSpec){
		"spec.containers: Required value":                                                              func(s *corev1.PodSpec) { s.Containers = nil },
		"spec.containers[0].image: Required value":                                                     func(s *corev1.PodSpec) { s.Containers[0].Image = "" },
		`spec.containers[0].name: Invalid value: "C_1": a lowercase RFC 1123`:                          func(s *corev1.PodSpec) { s.Containers[0].Name = "C_1" },
		`spec.restartPolicy: Unsupported value: "X": supported values: "Always", "OnFailure", "Never"`: func(s *corev1.PodSpec) { s.RestartPolicy = proto.String("X") },
		`spec.containers[1].name: Duplicate value: "c"`:                                                func(s *corev1.PodSpec) { s.Containers = append(s.Containers, &corev1.Container{Name: "c", Image: "i"}) },
		`spec.containers[0].name: Duplicate value: "c"`:                                                func(s *corev1.PodSpec) { s.InitContainers = []*corev1.Container{{Name: "c", Image: "i"}} },
		`spec.containers[0].volumeMounts[0].name: Not found: "v"`: func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts = []*corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		},
		`spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type`: func(s *corev1.PodSpec) {
			s.Volumes = []*corev1.Volume{{Name: "v", EmptyDir: &corev1.EmptyDirVolumeSource{}, HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}}
		},
		`spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`: func(s *corev1.PodSpec) {
			s.Containers[0].Resources = &corev1.ResourceRequirements{Limits: map[string]string{"cpu": "1"}, Requests: map[string]string{"cpu": "2"}}
		},
		`spec.containers[0].resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2`: func(s *corev1.PodSpec) {
			s.Containers[0].Resources = &corev1.ResourceRequirements{Limits: map[string]string{"nvidia.com/gpu": "2"}, Requests: map[string]string{"nvidia.com/gpu": "1"}}
		},
		`spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources`: func(s *corev1.PodSpec) {
			s.Containers[0].Resources = &corev1.ResourceRequirements{Requests: map[string]string{"nvidia.com/gpu": "1"}}
		},
		`spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer`: func(s *corev1.PodSpec) {
			s.Containers[0].Resources = &corev1.ResourceRequirements{Limits: map[string]string{"nvidia.com/gpu": "500m"}}
		},
		`spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource`: func(s *corev1.PodSpec) {
			s.Containers[0].Resources = &corev1.ResourceRequirements{Limits: map[string]string{"gpu": "1"}}
		},
		`spec.containers[0].resources.limits[cpu]: Invalid value: "lots": must be a quantity`: func(s *corev1.PodSpec) {
			s.Containers[0].Resources = &corev1.ResourceRequirements{Limits: map[string]string{"cpu": "lots"}}
		},
		`spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive`: func(s *corev1.PodSpec) {
			s.Containers[0].Ports = []*corev1.ContainerPort{{ContainerPort: 70000}}
		},
		"spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort`": func(s *corev1.PodSpec) {
			s.HostNetwork = proto.Bool(true)
			s.Containers[0].Ports = []*corev1.ContainerPort{{ContainerPort: 80, HostPort: proto.Int32(81)}}
		},
		"spec.containers[0].env[0].valueFrom: Invalid value: (valueFrom): may not be specified when `value` is not empty": func(s *corev1.PodSpec) {
			s.Containers[0].Env = []*corev1.EnvVar{{Name: "A", Value: proto.String("x"), ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
		},
		`spec.nodeSelector: Invalid value: "bad key"`: func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"bad key": "x"} },
		`spec.tolerations[0].operator: Invalid value: "": operator must be Exists when`: func(s *corev1.PodSpec) {
			s.Tolerations = []*corev1.Toleration{{Effect: proto.String("NoExecute")}}
		},
		"spec.nodeName: Forbidden: cannot be set until all schedulingGates": func(s *corev1.PodSpec) {
			s.NodeName = proto.String("n1")
			s.SchedulingGates = []*corev1.PodSchedulingGate{{Name: "a.io/b"}}
		},
	} {
		p := pod(edit)
		s.Default(p)
		violations := s.ValidateCreate(p)
		if len(violations) != 1 || !strings.HasPrefix(violations[0].String(), want) {
			t.Errorf("want %s\ngot %v", want, violations)
		}
	}
	if v := s.ValidateCreate(&corev1.Pod{Metadata: meta()}); len(v) != 1 || v[0].String() != "spec: Required value" {
		t.Errorf("pod without spec: %v", v)
	}
}

func deployment(edit func(*appsv1.DeploymentSpec)) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{Metadata: meta(), Spec: &appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: &corev1.PodTemplateSpec{Metadata: &metav1.ObjectMeta{Labels: labels}, Spec: pod(nil).Spec},
	}}
	if edit != nil {
		edit(d.Spec)
	}
	return d
}

func TestDeployments(t *testing.T) {
	s := compile(t, &appsv1.Deployment{})
	d := deployment(nil)
	s.Default(d)
	r := d.Spec.Strategy.GetRollingUpdate()
	if d.Spec.GetReplicas() != 1 || d.Spec.Strategy.GetType() != "RollingUpdate" || r.GetMaxSurge().GetStringValue() != "25%" ||
		r.GetMaxUnavailable().GetStringValue() != "25%" || d.Spec.GetProgressDeadlineSeconds() != 600 {
		t.Fatalf("defaults: %v", d.Spec)
	}
	if d.Spec.Template.Spec.GetRestartPolicy() != "Always" {
		t.Fatal("the template got no defaults")
	}
	recreate := deployment(func(s *appsv1.DeploymentSpec) {
		s.Strategy = &appsv1.DeploymentStrategy{Type: proto.String("Recreate")}
	})
	s.Default(recreate)
	if recreate.Spec.Strategy.RollingUpdate != nil {
		t.Fatal("Recreate got a rollingUpdate")
	}
	for want, edit := range map[string]func(*appsv1.DeploymentSpec){
		"spec.selector: Required value": func(s *appsv1.DeploymentSpec) { s.Selector = nil },
		"spec.selector: Invalid value: {}: empty selector is invalid for deployment": func(s *appsv1.DeploymentSpec) {
			s.Selector = &metav1.LabelSelector{}
		},
		`spec.template.metadata.labels: Invalid value: {"app":"web"}: ` + "`selector` does not match template `labels`": func(s *appsv1.DeploymentSpec) {
			s.Selector.MatchLabels = map[string]string{"app": "db"}
		},
		`spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`: func(s *appsv1.DeploymentSpec) {
			s.Template.Spec.RestartPolicy = proto.String("Never")
		},
		"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0": func(s *appsv1.DeploymentSpec) {
			s.Strategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: structpb.NewNumberValue(0), MaxUnavailable: structpb.NewNumberValue(0)}}
		},
		`spec.strategy.rollingUpdate.maxSurge: Invalid value: "many": a valid percent string`: func(s *appsv1.DeploymentSpec) {
			s.Strategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: structpb.NewStringValue("many")}}
		},
		"spec.replicas: Invalid value: -1: must be greater than or equal to 0": func(s *appsv1.DeploymentSpec) { s.Replicas = proto.Int32(-1) },
		"spec.selector.matchExpressions[0].values: Required value: must be specified when `operator`": func(s *appsv1.DeploymentSpec) {
			s.Selector.MatchExpressions = []*metav1.LabelSelectorRequirement{{Key: "app", Operator: "In"}}
		},
	} {
		d := deployment(edit)
		s.Default(d)
		violations := s.ValidateCreate(d)
		if len(violations) != 1 || !strings.HasPrefix(violations[0].String(), want) {
			t.Errorf("want %s\ngot %v", want, violations)
		}
	}
	changed := deployment(func(s *appsv1.DeploymentSpec) {
		s.Selector.MatchExpressions = []*metav1.LabelSelectorRequirement{{Key: "app", Operator: "Exists"}}
	})
	s.Default(changed)
	if v := s.ValidateUpdate(changed, d); len(v) != 1 || v[0].String() != "spec.selector: Invalid value: (selector): field is immutable" {
		t.Errorf("changed selector: %v", v)
	}
}

func TestOtherKinds(t *testing.T) {
	group := compile(t, &schedulingv1.PodGroup{})
	g := &schedulingv1.PodGroup{Metadata: meta(), Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{}}}
	group.Default(g)
	if g.Spec.GetDisruptionMode().GetSingle() == nil {
		t.Error("disruptionMode got no default")
	}
	if v := group.ValidateCreate(g); len(v) != 1 || !strings.Contains(v[0].String(), "exactly one of: `basic`, `gang`") {
		t.Errorf("group without a policy: %v", v)
	}

	class := compile(t, &schedulingv1.PriorityClass{})
	for name, c := range map[string]struct {
		value int32
		want  string
	}{
		"fine": {5, ""}, "high": {2e9, "maximum allowed value"}, "system-x": {1, "reserved for system use"},
		"system-node-critical": {1, "its value is 2000001000"},
	} {
		v := class.ValidateCreate(&schedulingv1.PriorityClass{Metadata: &metav1.ObjectMeta{Name: name}, Value: proto.Int32(c.value)})
		if c.want == "" && len(v) > 0 || c.want != "" && (len(v) != 1 || !strings.Contains(v[0].String(), c.want)) {
			t.Errorf("%s: %v", name, v)
		}
	}

	secret := compile(t, &corev1.Secret{})
	s := &corev1.Secret{Metadata: meta(), Data: map[string][]byte{"a": []byte("1"), "b": []byte("2")}, StringData: map[string]string{"a": "3"}}
	secret.Default(s)
	if string(s.Data["a"]) != "3" || string(s.Data["b"]) != "2" || s.StringData != nil || s.GetType() != "Opaque" {
		t.Errorf("secret: %v", s)
	}

	config := compile(t, &corev1.ConfigMap{})
	old := &corev1.ConfigMap{Metadata: meta(), Data: map[string]string{"a": "1"}, Immutable: proto.Bool(true)}
	next := &corev1.ConfigMap{Metadata: meta(), Data: map[string]string{"a": "2", "bad key": "x"}}
	var fields []string
	for _, v := range config.ValidateUpdate(next, old) {
		fields = append(fields, v.Field)
	}
	slices.Sort(fields)
	if want := []string{"data", "data[bad key]", "immutable"}; !slices.Equal(fields, want) {
		t.Errorf("immutable config map: %v", fields)
	}
}
