package interop

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	k8sautoscalingv1 "k8s.io/api/autoscaling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	autoscalingv1 "trireme.dev/proto/gen/trireme/autoscaling/v1"
	autoscalingv2 "trireme.dev/proto/gen/trireme/autoscaling/v2"
	"trireme.dev/services/apiserver/apitest"
)

// TestAutoscalerVersions: what autoscaling/v1 has no fields for is in the annotations that Kubernetes uses, in the shape of
// Kubernetes' own types.
func TestAutoscalerVersions(t *testing.T) {
	const text = `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 9
  metrics:
  - type: Object
    object:
      describedObject: {apiVersion: v1, kind: Service, name: front}
      metric: {name: hits, selector: {matchLabels: {verb: GET}}}
      target: {type: Value, value: 2k}
  - type: Pods
    pods: {metric: {name: queue}, target: {type: AverageValue, averageValue: "30"}}
  - type: Resource
    resource: {name: memory, target: {type: AverageValue, averageValue: 500Mi}}
  - type: ContainerResource
    containerResource: {name: cpu, container: app, target: {type: Utilization, averageUtilization: 60}}
  - type: External
    external: {metric: {name: lag}, target: {type: AverageValue, averageValue: "7"}}
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 75}}
  behavior: {scaleDown: {stabilizationWindowSeconds: 120, policies: [{type: Percent, value: 10, periodSeconds: 60}]}}
`
	documents, err := manifest.Decode(kind.Builtin(), "hpa.yaml", bytes.NewReader([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	gateway := apitest.New(t)
	v2, v1 := client.For[*autoscalingv2.HorizontalPodAutoscaler](gateway.Conn()), client.For[*autoscalingv1.HorizontalPodAutoscaler](gateway.Conn())
	object, _ := documents[0].Object.(*autoscalingv2.HorizontalPodAutoscaler)
	if _, err := v2.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	got, err := v1.Get(t.Context(), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	if got.GetSpec().GetTargetCpuUtilizationPercentage() != 75 || got.GetSpec().GetMinReplicas() != 2 {
		t.Errorf("spec %v", got.GetSpec())
	}
	annotations := got.GetMetadata().GetAnnotations()
	var metrics []k8sautoscalingv1.MetricSpec
	if err := strictly([]byte(annotations["autoscaling.alpha.kubernetes.io/metrics"]), &metrics); err != nil {
		t.Fatalf("Kubernetes cannot read the metrics: %v in %s", err, annotations)
	}
	var want []k8sautoscalingv1.MetricSpec
	if err := json.Unmarshal([]byte(`[
		{"type":"Object","object":{"target":{"kind":"Service","name":"front","apiVersion":"v1"},"metricName":"hits","targetValue":"2k",
			"selector":{"matchLabels":{"verb":"GET"}}}},
		{"type":"Pods","pods":{"metricName":"queue","targetAverageValue":"30"}},
		{"type":"Resource","resource":{"name":"memory","targetAverageValue":"500Mi"}},
		{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":60,"container":"app"}},
		{"type":"External","external":{"metricName":"lag","targetAverageValue":"7"}}]`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, metrics); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if _, err := v1.Update(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	again, err := v2.Get(t.Context(), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	if len(again.GetSpec().GetMetrics()) != 6 || again.GetMetadata().GetGeneration() != 1 || again.GetSpec().GetBehavior().GetScaleDown() == nil {
		t.Errorf("a v1 client that wrote what it read changed %v", again)
	}
}

// TestPodGroupVersions: groups of v1alpha2 and of scheduler-plugins are, as they are stored, groups of v1beta1 and v1alpha3 to
// Kubernetes' own types. Types of their own versions are in no k8s.io/api of today.
func TestPodGroupVersions(t *testing.T) {
	const text = `apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: older, namespace: default}
spec:
  podGroupTemplateRef: {workload: {workloadName: train, podGroupTemplateName: workers}}
  schedulingPolicy: {gang: {minCount: 4}}
  schedulingConstraints: {topology: [{key: topology.kubernetes.io/zone}]}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: h200}]
  disruptionMode: PodGroup
---
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: plugins, namespace: default}
spec: {minMember: 3, scheduleTimeoutSeconds: 10, minResources: {cpu: "2"}}
`
	registry := kind.Builtin()
	documents, err := manifest.Decode(registry, "groups.yaml", bytes.NewReader([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	gateway := apitest.New(t)
	for _, d := range documents {
		if _, err := client.Dynamic(gateway.Conn(), d.Kind).Create(t.Context(), d.Object); err != nil {
			t.Fatal(err)
		}
	}
	stored, ok := registry.ByManifest("scheduling.k8s.io/v1beta1", "PodGroup")
	if !ok {
		t.Fatal("no kind PodGroup of v1beta1")
	}
	seen := func(name string) *schedulingv1beta1.PodGroup {
		t.Helper()
		object, err := client.Dynamic(gateway.Conn(), stored).Get(t.Context(), "default", name)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := manifest.ToJSON(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := strictly(raw, &schedulingv1alpha3.PodGroup{}); err != nil {
			t.Errorf("not of v1alpha3: %v in %s", err, raw)
		}
		out := &schedulingv1beta1.PodGroup{}
		if err := strictly(raw, out); err != nil {
			t.Fatalf("not of v1beta1: %v in %s", err, raw)
		}
		return out
	}
	template := "h200"
	want := schedulingv1beta1.PodGroupSpec{
		WorkloadRef:           &schedulingv1beta1.WorkloadReference{WorkloadName: "train", TemplateName: "workers"},
		SchedulingPolicy:      schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 4}},
		SchedulingConstraints: &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: "topology.kubernetes.io/zone"}}},
		ResourceClaims:        []schedulingv1beta1.PodGroupResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}},
		DisruptionMode:        &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}},
	}
	got := seen("older").Spec
	want.Priority, want.PreemptionPolicy = got.Priority, got.PreemptionPolicy // defaults, which are admission's
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("of v1alpha2 (-want +got):\n%s", diff)
	}
	plugins := seen("plugins")
	if gang := plugins.Spec.SchedulingPolicy.Gang; gang == nil || gang.MinCount != 3 {
		t.Errorf("of scheduler-plugins: %+v", plugins.Spec)
	}
	for key, value := range map[string]string{
		"scheduling.x-k8s.io/min-resources": `{"cpu":"2"}`, "scheduling.x-k8s.io/schedule-timeout-seconds": "10",
	} {
		if plugins.Annotations[key] != value {
			t.Errorf("annotations %v, want %s: %s", plugins.Annotations, key, value)
		}
	}
}
