package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	_ "trireme.dev/proto/gen/trireme/apps/v1" // Deployment
	_ "trireme.dev/proto/gen/trireme/core/v1" // Pod
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels:
    app: web
    tier: "1"
spec:
  replicas: 0
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      volumes:
      - name: tmp
        emptyDir: {}
      containers:
      - name: nginx
        image: nginx:1.27
        args:
        - -c
        - |
          set -e
          echo hello
        - "yes"
        - ""
        ports:
        - containerPort: 80
          protocol: TCP
        env:
        - name: A
          value: "1"
        resources:
          limits:
            cpu: 500m
            memory: 1Gi
        readinessProbe:
          httpGet:
            port: http
          failureThreshold: 0
  strategy:
    rollingUpdate:
      maxUnavailable: 25%
      maxSurge: 1
`

func TestRoundTrip(t *testing.T) {
	registry := kind.Builtin()
	documents, err := manifest.Decode(registry, "web.yaml", strings.NewReader(deployment))
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != 1 || documents[0].Source != "web.yaml:1" {
		t.Fatalf("got %+v", documents)
	}
	text, err := manifest.EncodeYAML(documents[0].Kind, documents[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(deployment, string(text)); diff != "" {
		t.Errorf("printed otherwise than read (-want +got):\n%s", diff)
	}
	asJSON, err := manifest.EncodeJSON(documents[0].Kind, documents[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	again, err := manifest.Decode(registry, "web.json", strings.NewReader(string(asJSON)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(documents[0].Object, again[0].Object, protocmp.Transform()); diff != "" {
		t.Errorf("JSON lost something (-want +got):\n%s", diff)
	}
}
