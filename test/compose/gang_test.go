//go:build compose && linux

package compose

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// talking is a gang whose members serve their name, and ask each other.
func talking(members int) string {
	text := fmt.Sprintf(`apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: talking}
spec: {schedulingPolicy: {gang: {minCount: %d}}}
`, members)
	for i := range members {
		text += fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: talking-%d, labels: {app: talking}}
spec:
  schedulingGroup: {podGroupName: talking}
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: trireme.dev/busybox:1
      imagePullPolicy: IfNotPresent
      command: [sh, -c, "mkdir /www && hostname >/www/name && exec httpd -f -p 8080 -h /www"]
      resources: {limits: {nvidia.com/gpu: 2}}
`, i)
	}
	return text
}

// gangTalks: the members of a gang over both nodes reach each other by address, each from each.
func gangTalks(t *testing.T, p *project) {
	p.trireme(t, "image", "load", filepath.Join(p.root, "build", "images", "busybox.tar"))
	p.apply(t, "talking.yaml", talking(4))
	members := p.running(t, "app=talking", 4)
	nodes := map[string]int{}
	for _, one := range members {
		nodes[one.Spec.NodeName]++
	}
	if diff := cmp.Diff(map[string]int{"node-1": 2, "node-2": 2}, nodes); diff != "" {
		t.Fatalf("members by node (-want +got):\n%s", diff)
	}
	for _, from := range members {
		for _, to := range members {
			want := to.Metadata.Name
			p.eventually(t, fmt.Sprintf("answer of %s to %s", want, from.Metadata.Name), func() (bool, string) {
				out, err := p.tryTrireme("exec", from.Metadata.Name, "--", "wget", "-qO-", "-T", "5", "http://"+to.Status.PodIP+":8080/name")
				return err == nil && strings.TrimSpace(out) == want, out
			})
		}
	}
	p.trireme(t, "delete", "-f", "talking.yaml")
}

// traced is a pod that a controller makes, with devices: all five services have a part in it.
const traced = `apiVersion: apps/v1
kind: Deployment
metadata: {name: traced}
spec:
  replicas: 1
  selector: {matchLabels: {app: traced}}
  template:
    metadata: {labels: {app: traced}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: worker
          image: trireme.dev/gpu-worker:latest
          imagePullPolicy: IfNotPresent
          resources: {limits: {nvidia.com/gpu: 2}}
`

// oneTrace: Jaeger has one trace of the pod's start, with all five services in it and nothing over 20 ms that no span covers.
func oneTrace(t *testing.T, p *project) {
	p.apply(t, "traced.yaml", traced)
	name := p.running(t, "app=traced", 1)[0].Metadata.Name
	var trace struct {
		TraceID        string
		Gaps           []any
		MissingParents int
	}
	p.eventually(t, "trace of "+name+" up to Ready", func() (bool, string) {
		out, err := p.tryTrireme("trace", "pod/"+name, "--output=json")
		return err == nil && json.Unmarshal([]byte(out), &trace) == nil && strings.Contains(out, `"name": "Ready"`), out
	})
	if len(trace.Gaps) > 0 || trace.MissingParents > 0 {
		t.Errorf("%d spans without their parent, gaps: %v\n%s", trace.MissingParents, trace.Gaps, p.trireme(t, "trace", "pod/"+name))
	}
	// The same from Jaeger itself, as it answers its own page.
	client := &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
	response, err := client.Get("http://127.0.0.1:16686/api/traces/" + trace.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Data []struct {
			TraceID   string
			Processes map[string]struct{ ServiceName string }
		}
	}
	if err := json.Unmarshal(body, &found); err != nil || len(found.Data) != 1 || found.Data[0].TraceID != trace.TraceID {
		t.Fatalf("Jaeger's answer for trace %s (%v):\n%.2000s", trace.TraceID, err, body)
	}
	services := map[string]bool{}
	for _, process := range found.Data[0].Processes {
		services[process.ServiceName] = true
	}
	want := []string{"apiserver", "controller", "deviced", "nodeagent", "scheduler"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(services))); diff != "" {
		t.Errorf("services in the trace (-want +got):\n%s", diff)
	}
	p.trireme(t, "delete", "-f", "traced.yaml")
}

// apply writes a manifest into the clone and applies it.
func (p *project) apply(t *testing.T, name, manifest string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.clone, name), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	p.trireme(t, "apply", "-f", name)
}
