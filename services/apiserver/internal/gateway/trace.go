package gateway

import (
	"strings"

	"trireme.dev/services/apiserver/internal/registry"
)

// TraceRoot reports whether a span of this name may begin a trace: the creation of an object, but not of what the cluster
// keeps for itself.
func TraceRoot(span string) bool {
	service, verb, call := strings.Cut(span, "/")
	if !call {
		return strings.HasPrefix(span, registry.CreateSpan)
	}
	switch service {
	case "trireme.core.v1.EventService", "trireme.coordination.v1.LeaseService", "trireme.component.v1.ComponentService":
		return false
	}
	return verb == "Create"
}
