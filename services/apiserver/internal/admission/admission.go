// Package admission decides on writes before they are validated and stored: it may complete a new object from what
// else exists, or refuse the write. The list in New is all of it, in order. It stores nothing itself. In the chain it
// stands between gateway and registry.
package admission

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/apiserver/internal/registry"
)

// request is one write under admission; old is nil on create.
type request struct {
	kind     *kind.Kind
	obj, old registry.Object
}

// step is one plugin.
type step struct {
	name  string
	admit func(ctx context.Context, r request) error
}

// New returns the chain over what the registry knows.
func New(reg *registry.Registry) registry.Admit {
	steps := []step{
		// First: nothing is worth completing in a namespace that is not there.
		{"NamespaceLifecycle", func(ctx context.Context, r request) error { return namespaceLifecycle(ctx, reg, r) }},
		{"Priority", func(ctx context.Context, r request) error { return priority(ctx, reg, r) }},
		{"DefaultTolerationSeconds", defaultTolerationSeconds},
	}
	return func(ctx context.Context, k *kind.Kind, obj, old registry.Object) error {
		for _, s := range steps {
			if err := s.admit(ctx, request{k, obj, old}); err != nil {
				return fmt.Errorf("admission %s: %w", s.name, err)
			}
		}
		return nil
	}
}

// namespaceLifecycle refuses new objects in namespaces that do not exist or are on their way out.
func namespaceLifecycle(ctx context.Context, reg *registry.Registry, r request) error {
	if !r.kind.Namespaced || r.old != nil {
		return nil
	}
	meta := r.obj.GetMetadata()
	state, err := reg.Namespace(ctx, meta.GetNamespace())
	switch {
	case err != nil:
		return err
	case state == registry.NamespaceMissing:
		return apierr.NotFound("Namespace", meta.GetNamespace())
	case state == registry.NamespaceTerminating:
		key := r.kind.Key(meta.GetNamespace(), meta.GetName())
		return apierr.Forbidden(r.kind.Name, key, fmt.Sprintf(
			"%s %q is forbidden: unable to create new content in namespace %s because it is being terminated",
			r.kind.Name, key, meta.GetNamespace()))
	}
	return nil
}

// priority turns the class of a pod or pod group into its number.
func priority(ctx context.Context, reg *registry.Registry, r request) error {
	if r.old != nil {
		return nil
	}
	switch obj := r.obj.(type) {
	case *corev1.Pod:
		if obj.GetSpec() == nil {
			return nil
		}
		s := obj.Spec
		value, policy, err := resolve(ctx, reg, r, &s.PriorityClassName)
		if err != nil {
			return err
		}
		if s.Priority != nil && s.GetPriority() != value {
			return forbidden(r, fmt.Sprintf("the integer value of priority (%d) must not be provided in pod spec; "+
				"priority admission controller computed %d from the given PriorityClass name", s.GetPriority(), value))
		}
		s.Priority = proto.Int32(value)
		if s.PreemptionPolicy == nil {
			s.PreemptionPolicy = proto.String(policy)
		}
	case *schedulingv1.PodGroup:
		if obj.GetSpec() == nil {
			return nil
		}
		s := obj.Spec
		value, policy, err := resolve(ctx, reg, r, &s.PriorityClassName)
		if err != nil {
			return err
		}
		s.Priority = proto.Int32(value)
		if s.PreemptionPolicy == nil {
			s.PreemptionPolicy = proto.String(policy)
		}
	}
	return nil
}

// resolve returns value and preemption policy of the class named; where none is named, of the global default, whose
// name is filled in.
func resolve(ctx context.Context, reg *registry.Registry, r request, name **string) (int32, string, error) {
	if *name != nil && **name != "" {
		obj, err := reg.Find(ctx, "PriorityClass", **name)
		if apierr.IsNotFound(err) {
			return 0, "", forbidden(r, fmt.Sprintf("no PriorityClass with name %s was found", **name))
		}
		if err != nil {
			return 0, "", err
		}
		pc, _ := obj.(*schedulingv1.PriorityClass)
		return pc.GetValue(), policyOf(pc), nil
	}
	all, err := reg.FindAll(ctx, "PriorityClass")
	if err != nil {
		return 0, "", err
	}
	// Should several claim to be the default, the lowest is taken, as Kubernetes does.
	var chosen *schedulingv1.PriorityClass
	for _, obj := range all {
		pc, _ := obj.(*schedulingv1.PriorityClass)
		if pc.GetGlobalDefault() && (chosen == nil || pc.GetValue() < chosen.GetValue()) {
			chosen = pc
		}
	}
	if chosen == nil {
		return 0, policyOf(nil), nil
	}
	*name = proto.String(chosen.GetMetadata().GetName())
	return chosen.GetValue(), policyOf(chosen), nil
}

func policyOf(pc *schedulingv1.PriorityClass) string {
	if p := pc.GetPreemptionPolicy(); p != "" {
		return p
	}
	return "PreemptLowerPriority"
}

func forbidden(r request, why string) error {
	meta := r.obj.GetMetadata()
	key := r.kind.Key(meta.GetNamespace(), meta.GetName())
	return apierr.Forbidden(r.kind.Name, key, fmt.Sprintf("%s %q is forbidden: %s", r.kind.Name, key, why))
}

const (
	taintNotReady    = "node.kubernetes.io/not-ready"
	taintUnreachable = "node.kubernetes.io/unreachable"
	// tolerationSeconds is how long a pod stays on a node that is not ready or cannot be reached.
	tolerationSeconds = 300
)

// defaultTolerationSeconds lets pods sit out short failures of their node, unless they say otherwise.
func defaultTolerationSeconds(_ context.Context, r request) error {
	pod, ok := r.obj.(*corev1.Pod)
	if !ok || pod.GetSpec() == nil || r.old != nil {
		return nil
	}
	for _, key := range []string{taintNotReady, taintUnreachable} {
		if !tolerates(pod.GetSpec().GetTolerations(), key) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, &corev1.Toleration{
				Key: proto.String(key), Operator: proto.String("Exists"), Effect: proto.String("NoExecute"),
				TolerationSeconds: proto.Int64(tolerationSeconds),
			})
		}
	}
	return nil
}

func tolerates(tolerations []*corev1.Toleration, key string) bool {
	for _, t := range tolerations {
		if (t.GetKey() == key || t.GetKey() == "") && (t.GetEffect() == "NoExecute" || t.GetEffect() == "") {
			return true
		}
	}
	return false
}
