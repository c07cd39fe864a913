package interop

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	ourv1 "trireme.dev/proto/gen/trireme/autoscaling/v1"
	ourv2 "trireme.dev/proto/gen/trireme/autoscaling/v2"
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
	v2, v1 := client.For[*ourv2.HorizontalPodAutoscaler](gateway.Conn()), client.For[*ourv1.HorizontalPodAutoscaler](gateway.Conn())
	object, _ := documents[0].Object.(*ourv2.HorizontalPodAutoscaler)
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
	var metrics []autoscalingv1.MetricSpec
	if err := strictly([]byte(annotations["autoscaling.alpha.kubernetes.io/metrics"]), &metrics); err != nil {
		t.Fatalf("Kubernetes cannot read the metrics: %v in %s", err, annotations)
	}
	var want []autoscalingv1.MetricSpec
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
