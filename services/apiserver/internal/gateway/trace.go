package gateway

import "strings"

// CreatePodSpan is the name of the span that roots the trace of a pod which a controller made.
const CreatePodSpan = "CreatePod"

// TraceRoot reports whether a span of this name may begin a trace: the creation of an object, but not of what the cluster
// keeps for itself.
func TraceRoot(span string) bool {
	service, verb, _ := strings.Cut(span, "/")
	switch service {
	case CreatePodSpan:
		return true
	case "trireme.core.v1.EventService", "trireme.coordination.v1.LeaseService", "trireme.component.v1.ComponentService":
		return false
	}
	return verb == "Create"
}
