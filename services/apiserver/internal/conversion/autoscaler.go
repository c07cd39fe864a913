package conversion

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	autoscalingv1 "trireme.dev/proto/gen/trireme/autoscaling/v1"
	autoscalingv2 "trireme.dev/proto/gen/trireme/autoscaling/v2"
)

// Annotations in which autoscaling/v1 keeps what it has no fields for. The first four are Kubernetes', and so is their
// text; the last is there only where the metric that v1 knows is not the last of all, where Kubernetes forgets its place.
const (
	otherMetrics   = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetrics = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditions     = "autoscaling.alpha.kubernetes.io/conditions"
	behavior       = "autoscaling.alpha.kubernetes.io/behavior"
	cpuPlace       = "autoscaling.trireme.dev/cpu-metric-index"
)

const (
	typeResource    = "Resource"
	typeUtilization = "Utilization"
	resourceCPU     = "cpu"
)

// cpuMetric is the one metric that autoscaling/v1 knows.
func cpuMetric(percent int32) *autoscalingv2.MetricSpec {
	return &autoscalingv2.MetricSpec{
		Type: typeResource,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   resourceCPU,
			Target: &autoscalingv2.MetricTarget{Type: typeUtilization, AverageUtilization: proto.Int32(percent)},
		},
	}
}

func cpuStatus(percent int32) *autoscalingv2.MetricStatus {
	return &autoscalingv2.MetricStatus{
		Type: typeResource,
		Resource: &autoscalingv2.ResourceMetricStatus{
			Name: resourceCPU, Current: &autoscalingv2.MetricValueStatus{AverageUtilization: proto.Int32(percent)},
		},
	}
}

func autoscalerFromStored(in *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv1.HorizontalPodAutoscaler {
	out := &autoscalingv1.HorizontalPodAutoscaler{Metadata: in.GetMetadata()}
	for _, key := range []string{otherMetrics, currentMetrics, conditions, behavior, cpuPlace} {
		take(out.GetMetadata(), key)
	}
	if spec := in.GetSpec(); spec != nil {
		out.Spec = &autoscalingv1.HorizontalPodAutoscalerSpec{MinReplicas: spec.MinReplicas, MaxReplicas: spec.GetMaxReplicas()}
		if spec.ScaleTargetRef != nil {
			out.Spec.ScaleTargetRef = recode(spec.ScaleTargetRef, &autoscalingv1.CrossVersionObjectReference{})
		}
		others := spec.GetMetrics()
		cpu := slices.IndexFunc(others, func(m *autoscalingv2.MetricSpec) bool {
			return proto.Equal(m, cpuMetric(m.GetResource().GetTarget().GetAverageUtilization()))
		})
		if cpu >= 0 {
			out.Spec.TargetCpuUtilizationPercentage = others[cpu].GetResource().GetTarget().AverageUtilization
			if cpu != len(others)-1 {
				put(&out.Metadata, cpuPlace, strconv.Itoa(cpu))
			}
			others = slices.Delete(slices.Clone(others), cpu, cpu+1)
		}
		putList(&out.Metadata, otherMetrics, others, metricToV1)
		if spec.Behavior != nil {
			put(&out.Metadata, behavior, text(spec.Behavior))
		}
	}
	if status := in.GetStatus(); status != nil {
		out.Status = &autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: status.ObservedGeneration, LastScaleTime: status.GetLastScaleTime(),
			CurrentReplicas: status.GetCurrentReplicas(), DesiredReplicas: status.GetDesiredReplicas(),
		}
		all := status.GetCurrentMetrics()
		if use := cpuUse(all); use != nil {
			out.Status.CurrentCpuUtilizationPercentage = use.AverageUtilization
		}
		if len(all) != 1 || !proto.Equal(all[0], cpuStatus(out.Status.GetCurrentCpuUtilizationPercentage())) {
			putList(&out.Metadata, currentMetrics, all, statusToV1)
		}
		putList(&out.Metadata, conditions, status.GetConditions(), conditionToV1)
	}
	return out
}

func autoscalerToStored(in *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	out := &autoscalingv2.HorizontalPodAutoscaler{Metadata: in.GetMetadata()}
	others, current := take(out.GetMetadata(), otherMetrics), take(out.GetMetadata(), currentMetrics)
	conds, fast, place := take(out.GetMetadata(), conditions), take(out.GetMetadata(), behavior), take(out.GetMetadata(), cpuPlace)
	if spec := in.GetSpec(); spec != nil {
		out.Spec = &autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: spec.MinReplicas, MaxReplicas: spec.GetMaxReplicas()}
		if spec.ScaleTargetRef != nil {
			out.Spec.ScaleTargetRef = recode(spec.ScaleTargetRef, &autoscalingv2.CrossVersionObjectReference{})
		}
		out.Spec.Metrics = readList(others, metricFromV1)
		if spec.TargetCpuUtilizationPercentage != nil {
			at, err := strconv.Atoi(place)
			if err != nil || at < 0 || at > len(out.Spec.Metrics) {
				at = len(out.Spec.Metrics)
			}
			out.Spec.Metrics = slices.Insert(out.Spec.Metrics, at, cpuMetric(spec.GetTargetCpuUtilizationPercentage()))
		}
		if fast != "" {
			if out.Spec.Behavior = (&autoscalingv2.HorizontalPodAutoscalerBehavior{}); !read(lowerKeys(fast), out.Spec.Behavior) {
				out.Spec.Behavior = nil
			}
		}
	}
	if status := in.GetStatus(); status != nil {
		out.Status = &autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: status.ObservedGeneration, LastScaleTime: status.GetLastScaleTime(),
			CurrentReplicas: status.GetCurrentReplicas(), DesiredReplicas: status.GetDesiredReplicas(),
			CurrentMetrics: readList(current, statusFromV1), Conditions: readList(conds, conditionFromV1),
		}
		// Where both say what the pods use, the field does: whoever writes v1 knows it alone.
		if use := cpuUse(out.Status.CurrentMetrics); use != nil {
			use.AverageUtilization = status.CurrentCpuUtilizationPercentage
		} else if status.CurrentCpuUtilizationPercentage != nil {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, cpuStatus(status.GetCurrentCpuUtilizationPercentage()))
		}
	}
	return out
}

// cpuUse finds the use of CPU that autoscaling/v1 shows; nil where there is none.
func cpuUse(all []*autoscalingv2.MetricStatus) *autoscalingv2.MetricValueStatus {
	for _, m := range all {
		if r := m.GetResource(); m.GetType() == typeResource && r.GetName() == resourceCPU && or(r.GetCurrent()).AverageUtilization != nil {
			return r.GetCurrent()
		}
	}
	return nil
}

// conditionV1 is a condition in an annotation.
type conditionV1 struct {
	Type               string  `json:"type"`
	Status             string  `json:"status"`
	LastTransitionTime *string `json:"lastTransitionTime,omitempty"`
	Reason             *string `json:"reason,omitempty"`
	Message            *string `json:"message,omitempty"`
	ObservedGeneration *int64  `json:"observedGeneration,omitempty"`
}

func conditionToV1(in *autoscalingv2.HorizontalPodAutoscalerCondition) conditionV1 {
	out := conditionV1{
		Type: in.GetType(), Status: in.GetStatus(), Reason: in.Reason, Message: in.Message, ObservedGeneration: in.ObservedGeneration,
	}
	if at := in.GetLastTransitionTime(); at != nil {
		out.LastTransitionTime = proto.String(at.AsTime().Format(time.RFC3339Nano))
	}
	return out
}

func conditionFromV1(in conditionV1) *autoscalingv2.HorizontalPodAutoscalerCondition {
	out := &autoscalingv2.HorizontalPodAutoscalerCondition{
		Type: in.Type, Status: in.Status, Reason: in.Reason, Message: in.Message, ObservedGeneration: in.ObservedGeneration,
	}
	if in.LastTransitionTime != nil {
		if at, err := time.Parse(time.RFC3339Nano, *in.LastTransitionTime); err == nil {
			out.LastTransitionTime = timestamppb.New(at)
		}
	}
	return out
}

// lowerKeys gives the keys of a JSON text small first letters: Kubernetes writes behavior with capital ones. Text that is
// no JSON stays as it is.
func lowerKeys(text string) string {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	out, err := json.Marshal(lower(value))
	if err != nil {
		return text
	}
	return string(out)
}

func lower(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			if key != "" && key[0] >= 'A' && key[0] <= 'Z' {
				key = string(key[0]+'a'-'A') + key[1:]
			}
			out[key] = lower(inner)
		}
		return out
	case []any:
		for i := range v {
			v[i] = lower(v[i])
		}
	}
	return value
}
