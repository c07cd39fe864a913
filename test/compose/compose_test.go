//go:build compose && linux

package compose

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	blocks "trireme.dev/test/readme"
)

// TestCompose is all of it, on one daemon, one project after the other.
func TestCompose(t *testing.T) {
	e := startEngine(t)
	e.load(t)
	t.Run("cluster", func(t *testing.T) { testCluster(t, e) })
	t.Run("faults", func(t *testing.T) { testFaults(t, e) })
	t.Run("ha", func(t *testing.T) { testHA(t, e) })
}

// testCluster goes through a cluster's life. Each step finds the cluster as the one before has left it: up, with the
// gang and the deployment running.
func testCluster(t *testing.T, e *engine) {
	p := newProject(t, e)
	p.up(t)
	p.nodesReady(t)
	steps := []struct {
		name string
		run  func(*testing.T, *project)
	}{
		{"ports", portsOnLoopback},
		{"files", filesOfOwner},
		{"readme", readme},
		{"jaeger", jaegerAnswers},
		{"gang", gang},
		{"why and plan", whyAndPlan},
		{"deployment", deployment},
		{"gang talks", gangTalks},
		{"one trace", oneTrace},
		{"node recreated", nodeRecreated},
		{"stop and start", stopAndStart},
		{"up again", upAgain},
	}
	for _, s := range steps {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, p) }) {
			return // the others would tell of nothing but this failure
		}
	}
}

// portsOnLoopback: nothing is published to the world.
func portsOnLoopback(t *testing.T, p *project) {
	got := slices.DeleteFunc(p.listening(t), func(address string) bool {
		return strings.HasPrefix(address, "127.0.0.11:") // the daemon's name service
	})
	slices.Sort(got)
	if diff := cmp.Diff([]string{"127.0.0.1:16686", "127.0.0.1:7443"}, got); diff != "" {
		t.Errorf("listeners on the machine (-want +got):\n%s", diff)
	}
}

// filesOfOwner: who cloned the repository can read what is for him, and delete the rest.
func filesOfOwner(t *testing.T, p *project) {
	state := filepath.Join(p.clone, "deploy", "compose", "state")
	for file, want := range map[string]int{
		"config.yaml": owner, "admin": owner, "admin/tls.key": owner, "admin/tls.crt": owner, "admin/ca.crt": owner,
		"ca": owner, "scheduler": owner, "ca/ca.key": 0, "scheduler/tls.key": 0,
	} {
		info, err := os.Stat(filepath.Join(state, file))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := int(info.Sys().(*syscall.Stat_t).Uid); got != want {
			t.Errorf("%s belongs to user %d, want %d", file, got, want)
		}
		if strings.HasSuffix(file, ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s", file, info.Mode())
		}
	}
}

// readme runs the lines of the page that say how to reach the cluster, as they stand there.
func readme(t *testing.T, p *project) {
	page, err := os.ReadFile(filepath.Join(p.clone, "deploy", "compose", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for begins, want := range map[string]string{
		"TRIREME_CONFIG=deploy/compose/state/config.yaml trireme get nodes": "node-2",
		"grpcurl ": `"name": "node-1"`,
	} {
		line := lineOf(string(page), begins)
		if line == "" {
			t.Errorf("README.md has no line that begins with %q", begins)
			continue
		}
		if out, err := p.sh(line); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want %q in\n%s", line, err, want, out)
		}
	}
	// What the page of the whole repository says of it.
	text, err := os.ReadFile(filepath.Join(p.root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := blocks.Blocks("README.md", text)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range shown {
		if b.Cluster != "compose" {
			continue
		}
		if out, err := p.sh(b.Script); err != nil {
			t.Errorf("README.md:%d: %v\n%s\n%s", b.Line, err, b.Script, out)
		}
		ran++
	}
	if ran == 0 {
		t.Error("README.md has no block for compose")
	}
	// The line by which machines without the CLI use it.
	const run = "docker compose run --rm trireme "
	if !strings.Contains(string(page), run) {
		t.Errorf("README.md does not tell of %q", run)
	}
	if out := p.do(t, "run", "--rm", "trireme", "get", "nodes"); !strings.Contains(out, "node-1") {
		t.Errorf("%s get nodes: %s", run, out)
	}
}

// jaegerAnswers: its API is where config.yaml says.
func jaegerAnswers(t *testing.T, p *project) {
	client := &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
	p.eventually(t, "answer of Jaeger", func() (bool, string) {
		response, err := client.Get("http://127.0.0.1:16686/api/services")
		if err != nil {
			return false, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode == http.StatusOK, response.Status
	})
}

// lineOf is the first line with this beginning, with those that it continues on.
func lineOf(page, begins string) string {
	_, rest, found := strings.Cut("\n"+page, "\n"+begins)
	if !found {
		return ""
	}
	line := begins
	for part := range strings.Lines(rest) {
		line += strings.TrimSuffix(strings.TrimSuffix(part, "\n"), "\\")
		if !strings.HasSuffix(part, "\\\n") {
			break
		}
	}
	return line
}

// gang: its members are on both nodes, and each sees its own devices.
func gang(t *testing.T, p *project) {
	p.trireme(t, "image", "load", filepath.Join(p.root, "build", "images", "gpu-worker.tar"))
	p.trireme(t, "apply", "-f", "examples/gpu-gang.yaml")
	nodes, devices := map[string]int{}, map[string]string{}
	for _, one := range p.running(t, "app=gpu-gang", 4) {
		name, node := one.Metadata.Name, one.Spec.NodeName
		nodes[node]++
		var visible string
		p.eventually(t, "output of "+name, func() (bool, string) {
			out, err := p.tryTrireme("logs", name)
			_, rest, found := strings.Cut(out, "NVIDIA_VISIBLE_DEVICES=")
			visible, _, _ = strings.Cut(rest, "\n")
			return err == nil && found && strings.Contains(out, "/dev/nvidia"), out
		})
		ids := strings.Split(visible, ",")
		if len(ids) != 2 {
			t.Errorf("%s was given %q, want two devices", name, visible)
		}
		for _, id := range ids {
			if !strings.Contains(id, node) {
				t.Errorf("%s on %s was given %s", name, node, id)
			}
			if other := devices[id]; other != "" {
				t.Errorf("%s and %s were both given %s", name, other, id)
			}
			devices[id] = name
		}
	}
	if len(nodes) != 2 {
		t.Errorf("the gang is on %v, want both nodes", nodes)
	}
}

const web = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: worker
          image: trireme.dev/gpu-worker:latest
          imagePullPolicy: IfNotPresent
`

func deployment(t *testing.T, p *project) {
	p.apply(t, "web.yaml", web)
	p.running(t, "app=web", 4)
}

// nodeRecreated: a node whose container was killed and made anew runs its pods again, the same ones.
func nodeRecreated(t *testing.T, p *project) {
	before := append(p.pods(t, "app=web"), p.pods(t, "app=gpu-gang")...)
	container := strings.TrimSpace(p.do(t, "ps", "--quiet", "node-1"))
	p.do(t, "kill", "node-1")
	p.do(t, "rm", "--force", "node-1")
	p.do(t, "up", "--detach", "--no-build", "--wait", "node-1")
	if now := strings.TrimSpace(p.do(t, "ps", "--quiet", "node-1")); now == container || now == "" {
		t.Fatalf("the container is %q as before", now)
	}
	p.same(t, before, "node-1")
}

// stopAndStart: objects survive in etcd, and what ran runs again.
func stopAndStart(t *testing.T, p *project) {
	before := append(p.pods(t, "app=web"), p.pods(t, "app=gpu-gang")...)
	p.do(t, "stop")
	p.do(t, "start")
	p.same(t, before, "node-1", "node-2")
}

// upAgain: a second up keeps the CA, and with it everybody's certificates.
func upAgain(t *testing.T, p *project) {
	file := filepath.Join(p.clone, "deploy", "compose", "state", "ca", "ca.crt")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p.up(t)
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the CA is another one")
	}
	p.nodesReady(t)
}

// same waits until the pods of before run, these and no others, those on the nodes that were away for another time.
func (p *project) same(t *testing.T, before []pod, away ...string) {
	t.Helper()
	p.nodesReady(t)
	names := func(pods []pod) []string {
		var all []string
		for _, one := range pods {
			all = append(all, fmt.Sprintf("%s %s on %s", one.Metadata.Name, one.Metadata.UID, one.Spec.NodeName))
		}
		slices.Sort(all)
		return all
	}
	restarts := map[string]int{}
	for _, one := range before {
		restarts[one.Metadata.UID] = one.restarts()
	}
	var now []pod
	p.eventually(t, "the containers started again", func() (bool, string) {
		now = append(p.running(t, "app=web", 4), p.running(t, "app=gpu-gang", 4)...)
		for _, one := range now {
			if slices.Contains(away, one.Spec.NodeName) && one.restarts() <= restarts[one.Metadata.UID] {
				return false, fmt.Sprintf("%s is said to run since before", one.Metadata.Name)
			}
		}
		return true, ""
	})
	if diff := cmp.Diff(names(before), names(now)); diff != "" {
		t.Errorf("pods before and now (-before +now):\n%s", diff)
	}
}

// testFaults: each is told in one line that names it and the way out.
func testFaults(t *testing.T, e *engine) {
	t.Run("port in use", func(t *testing.T) {
		p := newProject(t, e)
		var other net.Listener
		if err := e.inside(func() (err error) { other, err = net.Listen("tcp", "127.0.0.1:7443"); return err }); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		out, err := p.compose("up", "--detach", "--no-build", "apiserver").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "127.0.0.1:7443") {
			t.Errorf("with port 7443 taken: %v, want the port named in\n%s", err, out)
		}
		// The way out that README.md names.
		p.env = []string{"TRIREME_PORT=17443"}
		p.up(t, "apiserver")
		if out, err := p.tryTrireme("get", "namespaces"); err != nil {
			t.Errorf("at port 17443: %v\n%s", err, out)
		}
	})
	t.Run("missing capability", func(t *testing.T) {
		p := newProject(t, e)
		p.override(t, "fault.yaml", "services:\n  node-1:\n    restart: \"no\"\n    cap_drop: !override [NET_ADMIN]\n    cap_add: !override [SYS_ADMIN]\n")
		p.up(t, "apiserver")
		p.do(t, "up", "--detach", "--no-build", "node-1")
		p.says(t, "node-1", "missing capability NET_ADMIN: add it to the agent's container")
	})
	t.Run("state not writable", func(t *testing.T) {
		p := newProject(t, e)
		p.override(t, "fault.yaml", "services:\n  pki:\n    volumes: !override [\"./state:/state:ro\"]\n")
		if out, err := p.compose("up", "--detach", "--no-build", "apiserver").CombinedOutput(); err == nil {
			t.Errorf("the gateway starts without certificates:\n%s", out)
		}
		p.says(t, "pki", "/state is not writable")
	})
}

// says waits for a line in a service's log.
func (p *project) says(t *testing.T, service, want string) {
	t.Helper()
	p.eventually(t, fmt.Sprintf("%q in the log of %s", want, service), func() (bool, string) {
		out := p.do(t, "logs", "--no-color", service)
		for line := range strings.Lines(out) {
			if strings.Contains(line, want) {
				return true, out
			}
		}
		return false, out
	})
}

// testHA: one of each may go, the leaders too.
func testHA(t *testing.T, e *engine) {
	p := newProject(t, e, "compose.ha.yaml")
	p.up(t)
	p.nodesReady(t)
	p.trireme(t, "image", "load", filepath.Join(p.root, "build", "images", "gpu-worker.tar"))
	for _, service := range []string{"etcd", "apiserver", "scheduler", "controller"} {
		p.do(t, "kill", service)
	}
	p.apply(t, "web.yaml", web)
	p.running(t, "app=web", 4)
	// And the others, once the first are back.
	p.do(t, "start", "etcd", "apiserver", "scheduler", "controller")
	p.do(t, "up", "--detach", "--no-build", "--wait", "--wait-timeout=240")
	for _, service := range []string{"etcd-2", "apiserver-2", "scheduler-2", "controller-2"} {
		p.do(t, "kill", service)
	}
	p.trireme(t, "scale", "deployment/web", "--replicas=6")
	p.running(t, "app=web", 6)
}
