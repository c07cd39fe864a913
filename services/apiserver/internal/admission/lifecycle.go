package admission

import (
	"context"
	"fmt"
	"slices"

	"trireme.dev/client/apierr"
	"trireme.dev/services/apiserver/internal/registry"
)

// immortal are the namespaces that cannot be deleted.
var immortal = []string{"default", "kube-system", "kube-public"}

// namespaceLifecycle refuses new objects in namespaces that do not exist or are on their way out, and the deletion of those
// without which no cluster works.
func namespaceLifecycle(ctx context.Context, reg *registry.Registry, w registry.Write) error {
	if w.Operation == registry.Delete {
		if w.Kind.Name == "Namespace" && slices.Contains(immortal, w.Old.GetMetadata().GetName()) {
			return forbidden(w, "this namespace may not be deleted")
		}
		return nil
	}
	if !w.Kind.Namespaced {
		return nil
	}
	namespace := w.Object.GetMetadata().GetNamespace()
	state, err := reg.Namespace(ctx, namespace)
	switch {
	case err != nil:
		return err
	case state == registry.NamespaceMissing:
		return apierr.NotFound("Namespace", namespace)
	case state == registry.NamespaceTerminating:
		return forbidden(w, fmt.Sprintf("unable to create new content in namespace %s because it is being terminated", namespace))
	}
	return nil
}
