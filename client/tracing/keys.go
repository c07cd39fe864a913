package tracing

import (
	"go.opentelemetry.io/otel/attribute"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Attribute keys of spans: every span of this repository uses these and no synonym. Names without "trireme." are those of
// OpenTelemetry's semantic conventions, https://opentelemetry.io/docs/specs/semconv/registry/attributes/k8s/.
const (
	KeyNamespace   = attribute.Key("k8s.namespace.name")
	KeyPod         = attribute.Key("k8s.pod.name")
	KeyPodUID      = attribute.Key("k8s.pod.uid")
	KeyNode        = attribute.Key("k8s.node.name")
	KeyContainer   = attribute.Key("k8s.container.name")
	KeyContainerID = attribute.Key("container.id")
	KeyImage       = attribute.Key("container.image.name")

	// KeyKind and KeyName name an object that is no pod.
	KeyKind = attribute.Key("trireme.kind")
	KeyName = attribute.Key("trireme.name")
	// KeyReceiver is who heard of a change.
	KeyReceiver = attribute.Key("trireme.receiver")
	// KeyQueue is the part of a queue that something waited in: active, backoff, unschedulable, gated.
	KeyQueue = attribute.Key("trireme.queue")
	// KeyReason is why: of a wait, a rejection or an end, or of a request that leaves nothing behind.
	KeyReason = attribute.Key("trireme.reason")
	// KeyEvent is what happened elsewhere that ended a wait: NodeAdd.
	KeyEvent = attribute.Key("trireme.event")
	// KeyAttempt counts from 1.
	KeyAttempt  = attribute.Key("trireme.attempt")
	KeyPlugin   = attribute.Key("trireme.plugin")
	KeyPodGroup = attribute.Key("trireme.pod_group")
	// KeyCount is of what the span's name says.
	KeyCount = attribute.Key("trireme.count")
	// KeyFailed is how many of them came to nothing.
	KeyFailed = attribute.Key("trireme.failed")
	// KeyNodes is how many nodes were looked at, KeyFeasible how many of them would do.
	KeyNodes    = attribute.Key("trireme.nodes")
	KeyFeasible = attribute.Key("trireme.feasible_nodes")
	// KeyRejections is how many nodes each plugin rejected, KeyPlugins how long each plugin took: lists of text.
	KeyRejections = attribute.Key("trireme.rejections")
	KeyPlugins    = attribute.Key("trireme.plugins")
	// KeyResource is a device resource, KeyDevices the ids given.
	KeyResource   = attribute.Key("trireme.resource")
	KeyDevices    = attribute.Key("trireme.devices")
	KeyController = attribute.Key("trireme.controller")
	KeyVolume     = attribute.Key("trireme.volume")
	// KeyRevision is etcd's revision that a write got.
	KeyRevision = attribute.Key("trireme.revision")
	KeyPhase    = attribute.Key("trireme.phase")
)

// Pod names a pod on a span.
func Pod(meta *metav1.ObjectMeta) []attribute.KeyValue {
	return []attribute.KeyValue{
		KeyNamespace.String(meta.GetNamespace()), KeyPod.String(meta.GetName()), KeyPodUID.String(meta.GetUid()),
	}
}

// Object names an object of any kind on a span.
func Object(kind string, meta *metav1.ObjectMeta) []attribute.KeyValue {
	return []attribute.KeyValue{
		KeyKind.String(kind), KeyNamespace.String(meta.GetNamespace()), KeyName.String(meta.GetName()),
	}
}

// Receiver names who heard of a change.
func Receiver(by string) attribute.KeyValue { return KeyReceiver.String(by) }
