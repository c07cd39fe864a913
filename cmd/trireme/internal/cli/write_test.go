package cli_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/cmd/trireme/internal/contexts"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

// A write that another one overtakes is made again on what is there then, and loses nothing.
func TestApplyIsRetriedOnConflict(t *testing.T) {
	s := apitest.New(t)
	p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() })
	apply := func(value string) {
		t.Helper()
		_, errOut, code := p.run(t.Context(), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {mine: '"+value+"'}\n", "apply", "-f", "-")
		if code != 0 {
			t.Fatalf("exit %d: %s", code, errOut)
		}
	}
	apply("1")
	maps := client.For[*corev1.ConfigMap](s.Conn())
	var overtaken atomic.Bool
	s.SetFault(func(op apitest.Operation) error {
		if op.Name == "commit" && strings.HasSuffix(op.Key, "/configmaps/default/a") && overtaken.CompareAndSwap(false, true) {
			// t.Context is the test's: the fault is called from the gateway's goroutine.
			_, err := maps.Patch(t.Context(), "default", "a", metav1.PatchType_PATCH_TYPE_MERGE, []byte(`{"data":{"theirs":"2"}}`), "")
			if err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	apply("3")
	if !overtaken.Load() {
		t.Fatal("nothing overtook the write: the test shows nothing")
	}
	got, err := maps.Get(t.Context(), "default", "a")
	if err != nil {
		t.Fatal(err)
	}
	if got.GetData()["mine"] != "3" || got.GetData()["theirs"] != "2" {
		t.Errorf("data %v", got.GetData())
	}
}

// A pod may name the priority class and an object the namespace that the same files bring, in whatever order.
func TestManifestsMayBringWhatTheyNeed(t *testing.T) {
	const files = `apiVersion: v1
kind: Pod
metadata: {name: a, namespace: team}
spec: {priorityClassName: high, containers: [{name: a, image: a}]}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {name: b}
spec: {priorityClassName: high, containers: [{name: a, image: a}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
`
	for _, command := range []string{"apply", "create"} {
		t.Run(command, func(t *testing.T) {
			s := apitest.New(t)
			p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() })
			p.must(t, files, command, "-f", "-")
			for _, namespace := range []string{"team", "default"} {
				if out := p.must(t, "", "get", "pods", "-n", namespace, "-o", "jsonpath={.items[*].spec.priority}"); out != "1000" {
					t.Errorf("priority in %s: %q", namespace, out)
				}
			}
			// One that nothing brings is still a mistake that stops all.
			_, errOut, code := p.run(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: late}\n---\n"+
				"apiVersion: v1\nkind: Pod\nmetadata: {name: c}\nspec: {priorityClassName: low, containers: [{name: a, image: a}]}\n", command, "-f", "-")
			if code != 1 || !strings.Contains(errOut, "no PriorityClass with name low was found") || strings.Contains(errOut, "certificate") {
				t.Errorf("code %d, %q", code, errOut)
			}
			if _, _, code := p.run(t.Context(), "", "get", "namespace", "late"); code != 1 {
				t.Error("part of what was refused was written")
			}
		})
	}
}

// What happened to an earlier pod is not told of one that has its name now, and a pod on no node forwards nothing.
func TestPodMadeAgainHasNoPast(t *testing.T) {
	s := apitest.New(t)
	p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() })
	p.must(t, "", "run", "a", "--image", "a")
	uid := p.must(t, "", "get", "pod", "a", "-o", "jsonpath={.metadata.uid}")
	event := func(name, uid string) {
		t.Helper()
		p.must(t, "apiVersion: v1\nkind: Event\nmetadata: {name: "+name+"}\nreason: "+name+
			"\ninvolvedObject: {kind: Pod, namespace: default, name: a, uid: "+uid+"}\n", "create", "-f", "-")
	}
	event("its-own", uid)
	event("of-another", "an-earlier-one")
	if out := p.must(t, "", "describe", "pod", "a"); !strings.Contains(out, "its-own") || strings.Contains(out, "of-another") {
		t.Errorf("described as\n%s", out)
	}
	if _, errOut, code := p.run(t.Context(), "", "port-forward", "a", ":80"); code != 1 || !strings.Contains(errOut, "on no node yet") {
		t.Errorf("port-forward: code %d, %q", code, errOut)
	}
}

func TestWatchPrintsEachChange(t *testing.T) {
	s := apitest.New(t)
	p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() })
	p.must(t, "", "create", "namespace", "one")
	ctx, cancel := context.WithCancel(t.Context())
	reader, out := io.Pipe()
	ended := make(chan int, 1)
	go func() { ended <- p.stream(ctx, out, "get", "cm", "-w", "-n", "one", "--no-headers", "-o", "name") }()
	names := make(chan string)
	go func() {
		buffer := make([]byte, 256)
		for {
			n, err := reader.Read(buffer)
			if err != nil {
				close(names)
				return
			}
			names <- string(buffer[:n])
		}
	}()
	for _, name := range []string{"a", "b"} {
		p.must(t, "", "create", "cm", name, "-n", "one")
		if got, want := <-names, "configmap/"+name+"\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	p.must(t, "", "delete", "cm", "a", "-n", "one")
	if got := <-names; got != "configmap/a\n" {
		t.Errorf("deletion: %q", got)
	}
	cancel()
	<-ended
	_ = out.Close()
	<-names
}

// edit goes on until the text is right, with the reason it was refused on top.
func TestEdit(t *testing.T) {
	s := apitest.New(t)
	p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() })
	p.must(t, "", "create", "deployment", "web", "--image", "example/web")
	// The first time it breaks the value; the second time, seeing the complaint, it mends it.
	t.Setenv("TRIREME_EDITOR", `sh -c 'if grep -q "# .*spec.replicas" "$1"; then sed -i "s/replicas: .*/replicas: 4/" "$1"; else sed -i "s/replicas: 1/replicas: -1/" "$1"; fi' edit`)
	if out := p.must(t, "", "edit", "deploy", "web"); out != "deployment.apps/web edited\n" {
		t.Errorf("output %q", out)
	}
	if out := p.must(t, "", "get", "deploy", "web", "-o", "jsonpath={.spec.replicas}"); out != "4" {
		t.Errorf("replicas %s", out)
	}
	t.Setenv("TRIREME_EDITOR", "true")
	if _, errOut, code := p.run(t.Context(), "", "edit", "deploy", "web"); code != 0 || !strings.Contains(errOut, "no changes") {
		t.Errorf("code %d, %q", code, errOut)
	}
}
