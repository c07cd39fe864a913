//go:build compose && linux

package compose

import (
	"encoding/json"
	"fmt"
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

// whyAndPlan: the gateway passes both questions on to the scheduler in its container. The example gang has 8 of the 16 GPUs.
func whyAndPlan(t *testing.T, p *project) {
	p.trireme(t, "run", "greedy", "--image=trireme.dev/gpu-worker:latest", "--gpus=16")
	p.trireme(t, "wait", "pod/greedy", "--for=condition=PodScheduled=False")
	const fix = "Add a node with 16 nvidia.com/gpu or ask for at most 8 nvidia.com/gpu: both nodes have too few nvidia.com/gpu."
	if out := p.trireme(t, "why", "greedy"); !strings.HasPrefix(out, fix+"\n") {
		t.Errorf("trireme why greedy, want %q first in\n%s", fix, out)
	}
	p.trireme(t, "delete", "pod", "greedy")

	p.write(t, "talking.yaml", talking(4))
	out := p.trireme(t, "plan", "-f", "talking.yaml")
	if !strings.Contains(out, "talking-3") || !strings.Contains(out, "All 4 would be placed.") {
		t.Errorf("trireme plan of a gang that fits:\n%s", out)
	}
	p.write(t, "talking.yaml", talking(5))
	if out, err := p.tryTrireme("plan", "-f", "talking.yaml"); err == nil || !strings.Contains(out, "4 fit") {
		t.Errorf("trireme plan of a gang too large by one: %v\n%s", err, out)
	}
	if left := p.pods(t, "app=talking"); len(left) > 0 {
		t.Errorf("plans left pods: %v", left)
	}
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
				out, err := p.tryTrireme("exec", from.Metadata.Name, "--", "wget", "-qO-", "http://"+to.Status.PodIP+":8080/name")
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
	// The same from Jaeger itself, as it answers its own page. Services hand spans over each in their own time.
	want := []string{"apiserver", "controller", "deviced", "nodeagent", "scheduler"}
	p.eventually(t, "trace "+trace.TraceID+" with all services in Jaeger", func() (bool, string) {
		services, err := p.servicesOf(trace.TraceID)
		return err == nil && slices.Equal(services, want), fmt.Sprint(services, err)
	})
	p.trireme(t, "delete", "-f", "traced.yaml")
}

// servicesOf asks Jaeger which services have spans in a trace.
func (p *project) servicesOf(id string) ([]string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
	response, err := client.Get("http://127.0.0.1:16686/api/traces/" + id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var found struct {
		Data []struct {
			TraceID   string
			Processes map[string]struct{ ServiceName string }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return nil, err
	}
	if len(found.Data) != 1 || found.Data[0].TraceID != id {
		return nil, fmt.Errorf("found %d traces with the id", len(found.Data))
	}
	services := map[string]bool{}
	for _, process := range found.Data[0].Processes {
		services[process.ServiceName] = true
	}
	return slices.Sorted(maps.Keys(services)), nil
}

// apply writes a manifest into the clone and applies it.
func (p *project) apply(t *testing.T, name, manifest string) {
	t.Helper()
	p.write(t, name, manifest)
	p.trireme(t, "apply", "-f", name)
}

func (p *project) write(t *testing.T, name, manifest string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.clone, name), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
}
