package conversion

import (
	"encoding/json"

	"google.golang.org/protobuf/proto"

	autoscalingv2 "trireme.dev/proto/gen/trireme/autoscaling/v2"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// metricV1 is a metric in an annotation, in the shape that autoscaling/v1 of Kubernetes gives it there: what it should be
// in otherMetrics, what it is in currentMetrics. Exact is the metric as autoscaling/v2 has it, where the shape loses
// something of it; readers that do not know it pass it over.
type metricV1 struct {
	Type              string            `json:"type"`
	Object            *objectMetricV1   `json:"object,omitempty"`
	Pods              *podsMetricV1     `json:"pods,omitempty"`
	Resource          *resourceMetricV1 `json:"resource,omitempty"`
	ContainerResource *resourceMetricV1 `json:"containerResource,omitempty"`
	External          *externalMetricV1 `json:"external,omitempty"`
	Exact             json.RawMessage   `json:"autoscaling.trireme.dev/v2,omitempty"`
}

type referenceV1 struct {
	Kind       string  `json:"kind"`
	Name       string  `json:"name"`
	APIVersion *string `json:"apiVersion,omitempty"`
}

type objectMetricV1 struct {
	Target       referenceV1     `json:"target"`
	MetricName   string          `json:"metricName"`
	TargetValue  *string         `json:"targetValue,omitempty"`
	CurrentValue *string         `json:"currentValue,omitempty"`
	Selector     json.RawMessage `json:"selector,omitempty"`
	AverageValue *string         `json:"averageValue,omitempty"`
}

type podsMetricV1 struct {
	MetricName          string          `json:"metricName"`
	TargetAverageValue  *string         `json:"targetAverageValue,omitempty"`
	CurrentAverageValue *string         `json:"currentAverageValue,omitempty"`
	Selector            json.RawMessage `json:"selector,omitempty"`
}

type resourceMetricV1 struct {
	Name                      string  `json:"name"`
	TargetAverageUtilization  *int32  `json:"targetAverageUtilization,omitempty"`
	TargetAverageValue        *string `json:"targetAverageValue,omitempty"`
	CurrentAverageUtilization *int32  `json:"currentAverageUtilization,omitempty"`
	CurrentAverageValue       *string `json:"currentAverageValue,omitempty"`
	Container                 string  `json:"container,omitempty"`
}

type externalMetricV1 struct {
	MetricName          string          `json:"metricName"`
	MetricSelector      json.RawMessage `json:"metricSelector,omitempty"`
	TargetValue         *string         `json:"targetValue,omitempty"`
	TargetAverageValue  *string         `json:"targetAverageValue,omitempty"`
	CurrentValue        *string         `json:"currentValue,omitempty"`
	CurrentAverageValue *string         `json:"currentAverageValue,omitempty"`
}

// putList writes a list into an annotation, unless it is empty.
func putList[M, T any](meta **metav1.ObjectMeta, key string, list []M, convert func(M) T) {
	if len(list) == 0 {
		return
	}
	out := make([]T, len(list))
	for i, m := range list {
		out[i] = convert(m)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return // strings and numbers always marshal
	}
	put(meta, key, string(raw))
}

// readList is the way back; text that is no such list is none, as in Kubernetes.
func readList[M, T any](text string, convert func(T) M) []M {
	var list []T
	if text == "" || json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	var out []M
	for _, item := range list {
		out = append(out, convert(item))
	}
	return out
}

func metricToV1(in *autoscalingv2.MetricSpec) metricV1 {
	out := metricV1{Type: in.GetType()}
	if o := in.GetObject(); o != nil {
		out.Object = &objectMetricV1{
			Target: referenceToV1(o.GetDescribedObject()), MetricName: o.GetMetric().GetName(), Selector: selectorToV1(o.GetMetric()),
			TargetValue: orZero(or(o.GetTarget()).Value), AverageValue: or(o.GetTarget()).AverageValue,
		}
	}
	if p := in.GetPods(); p != nil {
		out.Pods = &podsMetricV1{
			MetricName: p.GetMetric().GetName(), Selector: selectorToV1(p.GetMetric()), TargetAverageValue: orZero(or(p.GetTarget()).AverageValue),
		}
	}
	if r := in.GetResource(); r != nil {
		out.Resource = &resourceMetricV1{
			Name: r.GetName(), TargetAverageUtilization: or(r.GetTarget()).AverageUtilization, TargetAverageValue: or(r.GetTarget()).AverageValue,
		}
	}
	if r := in.GetContainerResource(); r != nil {
		out.ContainerResource = &resourceMetricV1{
			Name: r.GetName(), Container: r.GetContainer(),
			TargetAverageUtilization: or(r.GetTarget()).AverageUtilization, TargetAverageValue: or(r.GetTarget()).AverageValue,
		}
	}
	if e := in.GetExternal(); e != nil {
		out.External = &externalMetricV1{
			MetricName: e.GetMetric().GetName(), MetricSelector: selectorToV1(e.GetMetric()),
			TargetValue: or(e.GetTarget()).Value, TargetAverageValue: or(e.GetTarget()).AverageValue,
		}
	}
	if !proto.Equal(metricFromV1(out), in) {
		out.Exact = json.RawMessage(text(in))
	}
	return out
}

func metricFromV1(in metricV1) *autoscalingv2.MetricSpec {
	if exact := (&autoscalingv2.MetricSpec{}); in.Exact != nil && read(string(in.Exact), exact) {
		return exact
	}
	out := &autoscalingv2.MetricSpec{Type: in.Type}
	if o := in.Object; o != nil {
		target := &autoscalingv2.MetricTarget{Type: "Value", Value: o.TargetValue}
		if o.AverageValue != nil {
			target = &autoscalingv2.MetricTarget{Type: "AverageValue", Value: unlessZero(o.TargetValue), AverageValue: o.AverageValue}
		}
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: referenceFromV1(o.Target), Target: target, Metric: identifier(o.MetricName, o.Selector),
		}
	}
	if p := in.Pods; p != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{
			Metric: identifier(p.MetricName, p.Selector),
			Target: &autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: p.TargetAverageValue},
		}
	}
	if r := in.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{Name: r.Name, Target: resourceTarget(r)}
	}
	if r := in.ContainerResource; r != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{Name: r.Name, Container: r.Container, Target: resourceTarget(r)}
	}
	if e := in.External; e != nil {
		target := &autoscalingv2.MetricTarget{Type: "Value", Value: e.TargetValue, AverageValue: e.TargetAverageValue}
		if e.TargetAverageValue != nil {
			target.Type = "AverageValue"
		}
		out.External = &autoscalingv2.ExternalMetricSource{Metric: identifier(e.MetricName, e.MetricSelector), Target: target}
	}
	return out
}

func resourceTarget(r *resourceMetricV1) *autoscalingv2.MetricTarget {
	target := &autoscalingv2.MetricTarget{
		Type: "AverageValue", AverageUtilization: r.TargetAverageUtilization, AverageValue: r.TargetAverageValue,
	}
	if r.TargetAverageUtilization != nil {
		target.Type = typeUtilization
	}
	return target
}

func statusToV1(in *autoscalingv2.MetricStatus) metricV1 {
	out := metricV1{Type: in.GetType()}
	if o := in.GetObject(); o != nil {
		out.Object = &objectMetricV1{
			Target: referenceToV1(o.GetDescribedObject()), MetricName: o.GetMetric().GetName(), Selector: selectorToV1(o.GetMetric()),
			CurrentValue: orZero(or(o.GetCurrent()).Value), AverageValue: or(o.GetCurrent()).AverageValue,
		}
	}
	if p := in.GetPods(); p != nil {
		out.Pods = &podsMetricV1{
			MetricName: p.GetMetric().GetName(), Selector: selectorToV1(p.GetMetric()), CurrentAverageValue: orZero(or(p.GetCurrent()).AverageValue),
		}
	}
	if r := in.GetResource(); r != nil {
		out.Resource = &resourceMetricV1{
			Name: r.GetName(), CurrentAverageUtilization: or(r.GetCurrent()).AverageUtilization,
			CurrentAverageValue: orZero(or(r.GetCurrent()).AverageValue),
		}
	}
	if r := in.GetContainerResource(); r != nil {
		out.ContainerResource = &resourceMetricV1{
			Name: r.GetName(), Container: r.GetContainer(), CurrentAverageUtilization: or(r.GetCurrent()).AverageUtilization,
			CurrentAverageValue: orZero(or(r.GetCurrent()).AverageValue),
		}
	}
	if e := in.GetExternal(); e != nil {
		out.External = &externalMetricV1{
			MetricName: e.GetMetric().GetName(), MetricSelector: selectorToV1(e.GetMetric()),
			CurrentValue: orZero(or(e.GetCurrent()).Value), CurrentAverageValue: or(e.GetCurrent()).AverageValue,
		}
	}
	if !proto.Equal(statusFromV1(out), in) {
		out.Exact = json.RawMessage(text(in))
	}
	return out
}

func statusFromV1(in metricV1) *autoscalingv2.MetricStatus {
	if exact := (&autoscalingv2.MetricStatus{}); in.Exact != nil && read(string(in.Exact), exact) {
		return exact
	}
	out := &autoscalingv2.MetricStatus{Type: in.Type}
	if o := in.Object; o != nil {
		out.Object = &autoscalingv2.ObjectMetricStatus{
			DescribedObject: referenceFromV1(o.Target), Metric: identifier(o.MetricName, o.Selector),
			Current: &autoscalingv2.MetricValueStatus{Value: unlessZero(o.CurrentValue), AverageValue: o.AverageValue},
		}
	}
	if p := in.Pods; p != nil {
		out.Pods = &autoscalingv2.PodsMetricStatus{
			Metric:  identifier(p.MetricName, p.Selector),
			Current: &autoscalingv2.MetricValueStatus{AverageValue: unlessZero(p.CurrentAverageValue)},
		}
	}
	if r := in.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{Name: r.Name, Current: resourceUse(r)}
	}
	if r := in.ContainerResource; r != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: r.Name, Container: r.Container, Current: resourceUse(r)}
	}
	if e := in.External; e != nil {
		out.External = &autoscalingv2.ExternalMetricStatus{
			Metric:  identifier(e.MetricName, e.MetricSelector),
			Current: &autoscalingv2.MetricValueStatus{Value: unlessZero(e.CurrentValue), AverageValue: e.CurrentAverageValue},
		}
	}
	return out
}

func resourceUse(r *resourceMetricV1) *autoscalingv2.MetricValueStatus {
	return &autoscalingv2.MetricValueStatus{
		AverageUtilization: r.CurrentAverageUtilization, AverageValue: unlessZero(r.CurrentAverageValue),
	}
}

func referenceToV1(in *autoscalingv2.CrossVersionObjectReference) referenceV1 {
	if in == nil {
		return referenceV1{}
	}
	return referenceV1{Kind: in.GetKind(), Name: in.GetName(), APIVersion: in.ApiVersion}
}

func referenceFromV1(in referenceV1) *autoscalingv2.CrossVersionObjectReference {
	return &autoscalingv2.CrossVersionObjectReference{Kind: in.Kind, Name: in.Name, ApiVersion: in.APIVersion}
}

func selectorToV1(in *autoscalingv2.MetricIdentifier) json.RawMessage {
	if in.GetSelector() == nil {
		return nil
	}
	return json.RawMessage(text(in.GetSelector()))
}

func identifier(name string, selector json.RawMessage) *autoscalingv2.MetricIdentifier {
	out := &autoscalingv2.MetricIdentifier{Name: name}
	if s := (&metav1.LabelSelector{}); selector != nil && read(string(selector), s) {
		out.Selector = s
	}
	return out
}

// or gives a message that is not there as an empty one.
func or[T any](m *T) *T {
	if m == nil {
		return new(T)
	}
	return m
}

// zero is how Kubernetes' types write a quantity that is not set and cannot be absent.
const zero = "0"

func orZero(quantity *string) *string {
	if quantity == nil {
		return proto.String(zero)
	}
	return quantity
}

func unlessZero(quantity *string) *string {
	if quantity != nil && *quantity == zero {
		return nil
	}
	return quantity
}
