// Package podconfig gathers the ConfigMaps and Secrets that a pod refers to, for its environment and its volumes.
//
// It reads them through the gateway when it is told to, all at once, and remembers per object why it could not be had:
// one that is missing holds up only the containers that need it. It never watches and never caches.
package podconfig

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// Objects are the ConfigMaps and Secrets of one pod, as they were when they were fetched.
type Objects struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	errs       map[Ref]error
}

// Ref names an object in the pod's namespace.
type Ref struct {
	// Kind is ConfigMap or Secret.
	Kind, Name string
}

// NewObjects returns objects known already; what is not among them does not exist.
func NewObjects(configMaps []*corev1.ConfigMap, secrets []*corev1.Secret) *Objects {
	o := &Objects{configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}, errs: map[Ref]error{}}
	for _, m := range configMaps {
		o.configMaps[m.GetMetadata().GetName()] = m
	}
	for _, s := range secrets {
		o.secrets[s.GetMetadata().GetName()] = s
	}
	return o
}

// ConfigMap returns a ConfigMap. The error is NotFound where it does not exist.
func (o *Objects) ConfigMap(name string) (*corev1.ConfigMap, error) {
	if o != nil {
		if m := o.configMaps[name]; m != nil {
			return m, nil
		}
		if err := o.errs[Ref{"ConfigMap", name}]; err != nil {
			return nil, err
		}
	}
	return nil, missing("configmap", name)
}

// Secret returns a Secret. The error is NotFound where it does not exist.
func (o *Objects) Secret(name string) (*corev1.Secret, error) {
	if o != nil {
		if s := o.secrets[name]; s != nil {
			return s, nil
		}
		if err := o.errs[Ref{"Secret", name}]; err != nil {
			return nil, err
		}
	}
	return nil, missing("secret", name)
}

func missing(kind, name string) error {
	return &apierr.Error{Reason: apierr.ReasonNotFound, Kind: kind, Key: name, Message: fmt.Sprintf("%s %q not found", kind, name)}
}

// Failed reports whether an object could not be asked for at all.
func (o *Objects) Failed() bool { return o != nil && len(o.errs) > 0 }

// Refs lists what a pod refers to, each once.
func Refs(pod *corev1.Pod) []Ref {
	var refs []Ref
	seen := map[Ref]bool{}
	add := func(kind, name string) {
		if r := (Ref{kind, name}); name != "" && !seen[r] {
			seen[r] = true
			refs = append(refs, r)
		}
	}
	for _, list := range [][]*corev1.Container{pod.GetSpec().GetInitContainers(), pod.GetSpec().GetContainers()} {
		for _, c := range list {
			for _, from := range c.GetEnvFrom() {
				add("ConfigMap", from.GetConfigMapRef().GetName())
				add("Secret", from.GetSecretRef().GetName())
			}
			for _, env := range c.GetEnv() {
				add("ConfigMap", env.GetValueFrom().GetConfigMapKeyRef().GetName())
				add("Secret", env.GetValueFrom().GetSecretKeyRef().GetName())
			}
		}
	}
	for _, v := range pod.GetSpec().GetVolumes() {
		add("ConfigMap", v.GetConfigMap().GetName())
		add("Secret", v.GetSecret().GetSecretName())
		for _, s := range v.GetProjected().GetSources() {
			add("ConfigMap", s.GetConfigMap().GetName())
			add("Secret", s.GetSecret().GetName())
		}
	}
	return refs
}

// Fetch gets all that a pod refers to, in parallel. previous, which may be nil, stands in for what cannot be asked for
// now: a gateway that is away must not keep a container from starting again.
func Fetch(ctx context.Context, conn grpc.ClientConnInterface, pod *corev1.Pod, previous *Objects) *Objects {
	objects := NewObjects(nil, nil)
	refs := Refs(pod)
	if len(refs) == 0 {
		return objects
	}
	maps, secrets := client.For[*corev1.ConfigMap](conn), client.For[*corev1.Secret](conn)
	namespace := pod.GetMetadata().GetNamespace()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, ref := range refs {
		wg.Go(func() {
			var err error
			var m *corev1.ConfigMap
			var s *corev1.Secret
			if ref.Kind == "Secret" {
				s, err = secrets.Get(ctx, namespace, ref.Name)
			} else {
				m, err = maps.Get(ctx, namespace, ref.Name)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case apierr.IsNotFound(err):
			case err != nil:
				objects.fallBack(ref, previous, fmt.Errorf("get %s %q: %w", ref.Kind, ref.Name, err))
			case ref.Kind == "Secret":
				objects.secrets[ref.Name] = s
			default:
				objects.configMaps[ref.Name] = m
			}
		})
	}
	wg.Wait()
	return objects
}

func (o *Objects) fallBack(ref Ref, previous *Objects, err error) {
	if ref.Kind == "Secret" {
		if s, e := previous.Secret(ref.Name); e == nil {
			o.secrets[ref.Name] = s
			return
		}
	} else if m, e := previous.ConfigMap(ref.Name); e == nil {
		o.configMaps[ref.Name] = m
		return
	}
	o.errs[ref] = err
}
