package schema

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// defaulters are Kubernetes' defaults that options cannot say, by message. They run before those of the options.
var defaulters = map[protoreflect.FullName]func(proto.Message){
	"trireme.core.v1.PodSpec":            func(m proto.Message) { defaultPodSpec(m.(*corev1.PodSpec)) },
	"trireme.core.v1.Container":          func(m proto.Message) { defaultContainer(m.(*corev1.Container)) },
	"trireme.core.v1.Volume":             func(m proto.Message) { defaultVolume(m.(*corev1.Volume)) },
	"trireme.core.v1.Namespace":          func(m proto.Message) { defaultNamespace(m.(*corev1.Namespace)) },
	"trireme.core.v1.Secret":             func(m proto.Message) { defaultSecret(m.(*corev1.Secret)) },
	"trireme.core.v1.ServiceSpec":        func(m proto.Message) { defaultService(m.(*corev1.ServiceSpec)) },
	"trireme.apps.v1.DeploymentStrategy": func(m proto.Message) { defaultStrategy(m.(*appsv1.DeploymentStrategy)) },
}

func defaultPodSpec(s *corev1.PodSpec) {
	DefaultRequests(s)
	// Two spellings of one field: the old one follows, and counts where only it is given.
	switch {
	case s.ServiceAccountName == nil && s.ServiceAccount != nil:
		s.ServiceAccountName = proto.String(s.GetServiceAccount())
	case s.ServiceAccountName != nil:
		s.ServiceAccount = proto.String(s.GetServiceAccountName())
	}
	if !s.GetHostNetwork() {
		return
	}
	for _, containers := range [][]*corev1.Container{s.GetInitContainers(), s.GetContainers()} {
		for _, c := range containers {
			for _, port := range c.GetPorts() {
				if port.GetHostPort() == 0 {
					port.HostPort = proto.Int32(port.GetContainerPort())
				}
			}
		}
	}
}

// DefaultRequests gives each container the requests that follow from its limits.
func DefaultRequests(s *corev1.PodSpec) {
	for _, containers := range [][]*corev1.Container{s.GetInitContainers(), s.GetContainers()} {
		for _, c := range containers {
			for name, limit := range c.GetResources().GetLimits() {
				if _, ok := c.GetResources().GetRequests()[name]; ok {
					continue
				}
				if _, ok := QuantityOf(limit); !ok {
					continue // refused as a limit; nobody asked for it as a request
				}
				if c.Resources.Requests == nil {
					c.Resources.Requests = map[string]string{}
				}
				c.Resources.Requests[name] = limit
			}
		}
	}
}

func defaultContainer(c *corev1.Container) {
	if c.GetImagePullPolicy() == "" && c.GetImage() != "" {
		c.ImagePullPolicy = proto.String(pullPolicy(c.GetImage()))
	}
}

// pullPolicy is Always for an image that may change under its name: one with the tag latest, or with neither tag nor
// digest.
func pullPolicy(image string) string {
	if strings.Contains(image, "@") {
		return "IfNotPresent"
	}
	last := image[strings.LastIndexByte(image, '/')+1:]
	if _, tag, ok := strings.Cut(last, ":"); ok && tag != "latest" {
		return "IfNotPresent"
	}
	return "Always"
}

// defaultVolume makes a volume without a source an emptyDir.
func defaultVolume(v *corev1.Volume) {
	if len(volumeSources(v)) == 0 {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
}

// volumeSources names the sources that are set, as JSON spells them.
func volumeSources(v *corev1.Volume) []string {
	var out []string
	v.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if fd.Message() != nil {
			out = append(out, fd.JSONName())
		}
		return true
	})
	return out
}

// nameLabel lets selectors choose namespaces by name.
const nameLabel = "kubernetes.io/metadata.name"

func defaultNamespace(ns *corev1.Namespace) {
	meta := ns.GetMetadata()
	if meta.GetName() == "" {
		return
	}
	if meta.Labels == nil {
		meta.Labels = map[string]string{}
	}
	meta.Labels[nameLabel] = meta.GetName()
}

// MoveWriteOnly moves what an object holds for writing only to where it is kept, so that whoever compares it with what is
// stored finds no difference.
func MoveWriteOnly(obj proto.Message) {
	if s, ok := obj.(*corev1.Secret); ok {
		defaultSecret(s)
	}
}

// defaultSecret moves stringData, which is for writing only, into data.
func defaultSecret(s *corev1.Secret) {
	for k, v := range s.GetStringData() {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

func defaultService(s *corev1.ServiceSpec) {
	typ := s.GetType()
	if typ == "" {
		typ = "ClusterIP"
	}
	if typ != "ExternalName" {
		for _, port := range s.GetPorts() {
			if port.TargetPort == nil && port.GetPort() != 0 {
				port.TargetPort = structpb.NewNumberValue(float64(port.GetPort()))
			}
		}
		if s.InternalTrafficPolicy == nil {
			s.InternalTrafficPolicy = proto.String("Cluster")
		}
	}
	if (typ == "NodePort" || typ == "LoadBalancer") && s.ExternalTrafficPolicy == nil {
		s.ExternalTrafficPolicy = proto.String("Cluster")
	}
	if typ == "LoadBalancer" && s.AllocateLoadBalancerNodePorts == nil {
		s.AllocateLoadBalancerNodePorts = proto.Bool(true)
	}
}

func defaultStrategy(s *appsv1.DeploymentStrategy) {
	if (s.GetType() == "" || s.GetType() == "RollingUpdate") && s.RollingUpdate == nil {
		s.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
}
