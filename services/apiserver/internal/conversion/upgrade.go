package conversion

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// Upgrade brings values of a kind from one form in which they were stored to the next.
type Upgrade struct {
	// Message of the kind as it is stored now.
	Message protoreflect.FullName
	// From is the storage version that is left for the next one.
	From byte
	// Convert takes an object's bytes and returns new ones. It is called for bytes of that storage version only.
	Convert func(payload []byte) ([]byte, error)
}

// Upgrades lists all of them. A kind whose storage_version is n has n-1.
func Upgrades() []Upgrade {
	return []Upgrade{
		{Message: "trireme.scheduling.v1.PodGroup", From: 1, Convert: podGroupFrom1},
	}
}

// templateRefOf1 is the field of a PodGroup's spec by which v1alpha2 referred to a template while it shared the message.
const templateRefOf1 protowire.Number = 10

// podGroupFrom1 moves spec.podGroupTemplateRef, which storage version 1 had beside workloadRef, to the latter.
func podGroupFrom1(payload []byte) ([]byte, error) {
	group := &schedulingv1.PodGroup{}
	if err := proto.Unmarshal(payload, group); err != nil {
		return nil, fmt.Errorf("pod group of storage version 1: %w", err)
	}
	spec := group.GetSpec()
	if spec == nil {
		return payload, nil
	}
	m := spec.ProtoReflect()
	ref, others, err := cutField(m.GetUnknown(), templateRefOf1)
	if err != nil {
		return nil, fmt.Errorf("pod group of storage version 1: %w", err)
	}
	if ref == nil {
		return payload, nil
	}
	m.SetUnknown(others)
	if spec.WorkloadRef == nil {
		// {workload = 1 {workload_name = 1, pod_group_template_name = 2}}: the inner message has WorkloadReference's numbers.
		inner, _, err := cutField(ref, 1)
		if err == nil {
			spec.WorkloadRef = &schedulingv1.WorkloadReference{}
			err = proto.Unmarshal(inner, spec.WorkloadRef)
		}
		if err != nil {
			return nil, fmt.Errorf("pod group of storage version 1: podGroupTemplateRef: %w", err)
		}
	}
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(group)
	if err != nil {
		return nil, fmt.Errorf("pod group of storage version 1: %w", err)
	}
	return out, nil
}

// cutField returns the last value of a length-delimited field, nil where there is none, and the bytes without it.
func cutField(message []byte, number protowire.Number) (value, others []byte, err error) {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeField(message)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		if num == number && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(message)
			value, _ = protowire.ConsumeBytes(message[tag:n])
		} else {
			others = append(others, message[:n]...)
		}
		message = message[n:]
	}
	return value, others, nil
}
