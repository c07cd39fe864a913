package registry

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/client/quantity"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/internal/schema"
)

var claimStrategy = strategy{
	prepareCreate: clearStatus,
	prepareUpdate: func(next, old Object) {
		// What binds a claim stays when a manifest that knows nothing of it is sent again.
		n, _ := next.(*corev1.PersistentVolumeClaim)
		o, _ := old.(*corev1.PersistentVolumeClaim)
		if n.GetSpec() == nil {
			return
		}
		if n.Spec.VolumeName == nil {
			n.Spec.VolumeName = o.GetSpec().VolumeName
		}
		if n.Spec.StorageClassName == nil {
			n.Spec.StorageClassName = o.GetSpec().StorageClassName
		}
	},
	validateUpdate: validateClaimUpdate,
}

// validateClaimUpdate refuses every change of a claim's spec but those that Kubernetes allows: the volume and the class,
// once, where there was none, and of a bound claim the size asked for, down to what it has, and the class of attributes.
func validateClaimUpdate(nextObj, oldObj Object) []apierr.Violation {
	next, _ := nextObj.(*corev1.PersistentVolumeClaim)
	old, _ := oldObj.(*corev1.PersistentVolumeClaim)
	n, o := next.GetSpec(), old.GetSpec()
	rest := proto.CloneOf(n)
	if o.GetVolumeName() == "" {
		rest.VolumeName = o.VolumeName
	}
	if o.StorageClassName == nil {
		rest.StorageClassName = nil
	}
	if old.GetStatus().GetPhase() == "Bound" {
		rest.VolumeAttributesClassName = o.VolumeAttributesClassName
		if rest.GetResources() != nil && o.GetResources() != nil {
			rest.Resources.Requests = o.GetResources().GetRequests()
		}
	}
	var out []apierr.Violation
	for _, field := range schema.ChangedFields(rest, o) {
		out = append(out, apierr.Violation{
			Field: "spec." + field,
			Message: "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for " +
				"bound claims",
		})
	}
	asked, had := n.GetResources().GetRequests()["storage"], o.GetResources().GetRequests()["storage"]
	if got := old.GetStatus().GetCapacity()["storage"]; got != "" && less(asked, had) && less(asked, got) {
		out = append(out, apierr.Violation{
			Field:   "spec.resources.requests.storage",
			Message: fmt.Sprintf("Forbidden: %s is less than status.capacity, %s", asked, got),
		})
	}
	return out
}

// less compares two quantities; what is none is compared with nothing.
func less(a, b string) bool {
	x, err := quantity.Parse(a)
	if err != nil {
		return false
	}
	y, err := quantity.Parse(b)
	return err == nil && x.Cmp(y) < 0
}
