package merge_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	"trireme.dev/client/merge"
)

// indent puts a part of a manifest under its heading.
func indent(text string, by int) string {
	return strings.ReplaceAll("\n"+text, "\n", "\n"+strings.Repeat(" ", by))
}

func object(t *testing.T, head, text string) proto.Message {
	t.Helper()
	documents, err := manifest.Decode(kind.Builtin(), t.Name(), strings.NewReader(head+indent(text, 2)))
	if err != nil {
		t.Fatal(err)
	}
	return documents[0].Object
}

func TestThreeWay(t *testing.T) {
	const (
		pod        = "apiVersion: v1\nkind: Pod\nspec:"
		deployment = "apiVersion: apps/v1\nkind: Deployment\nspec:"
		metadata   = "apiVersion: v1\nkind: ConfigMap\nmetadata:"
	)
	tests := []struct {
		name, head, last, live, desired, want string
	}{
		{"a default stays", deployment, "replicas: 1", "replicas: 1\nrevisionHistoryLimit: 10", "replicas: 2", "replicas: 2\nrevisionHistoryLimit: 10"},
		{"what is no longer wanted goes", deployment, "replicas: 1\nminReadySeconds: 5", "replicas: 1\nminReadySeconds: 5\npaused: true", "replicas: 1", "replicas: 1\npaused: true"},
		{"zero is not absent", deployment, "replicas: 1", "replicas: 1", "replicas: 0", "replicas: 0"},
		{"what another changed is set back", deployment, "replicas: 1", "replicas: 7", "replicas: 1", "replicas: 1"},
		{"what another changed and nobody manages stays", deployment, "paused: false", "replicas: 7\npaused: false", "paused: false", "replicas: 7\npaused: false"},
		{"map key by key", metadata, "labels: {a: '1', b: '1'}", "labels: {a: '1', b: '1', x: '9'}", "labels: {a: '2', c: '1'}", "labels: {a: '2', c: '1', x: '9'}"},
		{"the map is gone and another's key stays", metadata, "labels: {a: '1'}", "labels: {a: '1', x: '9'}", "annotations: {}", "labels: {x: '9'}"},
		{"identity and bookkeeping are live's", metadata, "name: a", "name: a\nuid: u\nresourceVersion: '7'\ngeneration: 3\ncreationTimestamp: 2024-01-01T00:00:00Z",
			"name: b\nuid: v\nresourceVersion: '1'", "name: a\nuid: u\nresourceVersion: '7'\ngeneration: 3\ncreationTimestamp: 2024-01-01T00:00:00Z"},
		{"finalizers are a set", metadata, "finalizers: [mine, old]", "finalizers: [mine, theirs, old]", "finalizers: [new, mine]", "finalizers: [mine, theirs, new]"},
		{"another's owner stays", metadata, "", "ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: '1'}]",
			"ownerReferences: [{apiVersion: v1, kind: B, name: b, uid: '2'}]", "ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: '1'}, {apiVersion: v1, kind: B, name: b, uid: '2'}]"},
		{"containers by name", pod,
			"containers: [{name: a, image: a:1, command: [x]}, {name: gone, image: g}]",
			"containers: [{name: a, image: a:1, command: [x], imagePullPolicy: Always}, {name: gone, image: g}, {name: sidecar, image: s}]",
			"containers: [{name: new, image: new}, {name: a, image: a:2}]",
			"containers: [{name: new, image: new}, {name: a, image: a:2, imagePullPolicy: Always}, {name: sidecar, image: s}]"},
		{"what another put first stays first", pod, "containers: [{name: a}]", "containers: [{name: sidecar}, {name: a}]", "containers: [{name: a}]", "containers: [{name: sidecar}, {name: a}]"},
		{"another's element stays behind what it followed", pod, "containers: [{name: a}, {name: b}]", "containers: [{name: a}, {name: x}, {name: z}, {name: b}]",
			"containers: [{name: b}, {name: a}]", "containers: [{name: b}, {name: a}, {name: x}, {name: z}]"},
		{"a port matches the one whose protocol is the default", pod,
			"containers: [{name: a, ports: [{containerPort: 80}]}]", "containers: [{name: a, ports: [{containerPort: 80, protocol: TCP}]}]",
			"containers: [{name: a, ports: [{containerPort: 80, name: web}]}]", "containers: [{name: a, ports: [{containerPort: 80, protocol: TCP, name: web}]}]"},
		{"the same port of another protocol is another port", pod,
			"", "containers: [{name: a, ports: [{containerPort: 53, protocol: TCP}]}]",
			"containers: [{name: a, ports: [{containerPort: 53, protocol: UDP}]}]", "containers: [{name: a, ports: [{containerPort: 53, protocol: TCP}, {containerPort: 53, protocol: UDP}]}]"},
		{"a list without keys is replaced", pod, "containers: [{name: a, args: [x, w]}]", "containers: [{name: a, args: [x, w, z]}]", "containers: [{name: a, args: [q]}]", "containers: [{name: a, args: [q]}]"},
		{"a list without keys is removed", pod, "containers: [{name: a, args: [x]}]", "containers: [{name: a, args: [x]}]", "containers: [{name: a}]", "containers: [{name: a}]"},
		{"a list whose elements repeat a key is replaced", pod, "", "containers: [{name: a, env: [{name: X, value: '1'}, {name: Z}]}]",
			"containers: [{name: a, env: [{name: X, value: '2'}, {name: X, value: '3'}]}]", "containers: [{name: a, env: [{name: X, value: '2'}, {name: X, value: '3'}]}]"},
		{"an integer may become a string", deployment, "strategy: {rollingUpdate: {maxSurge: 1}}", "strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}",
			"strategy: {rollingUpdate: {maxSurge: 50%}}", "strategy: {rollingUpdate: {maxSurge: 50%, maxUnavailable: 25%}}"},
		{"a strategy's defaults do not outlive its type", deployment, "", "strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%}}", "strategy: {type: Recreate}", "strategy: {type: Recreate}"},
		{"a volume changes its source without a last manifest", pod, "", "volumes: [{name: v, emptyDir: {medium: Memory}}, {name: w, emptyDir: {}}]",
			"volumes: [{name: v, configMap: {name: c}}]", "volumes: [{name: v, configMap: {name: c}}, {name: w, emptyDir: {}}]"},
		{"a message that is no longer wanted goes with its defaults", pod, "securityContext: {runAsUser: 1}", "securityContext: {runAsUser: 1, runAsGroup: 2}", "hostPID: true", "hostPID: true"},
		{"the first apply keeps what was created", deployment, "", "replicas: 3\npaused: true", "replicas: 4", "replicas: 4\npaused: true"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			last, live := object(t, test.head, test.last), object(t, test.head, test.live)
			desired, want := object(t, test.head, test.desired), object(t, test.head, test.want)
			before := []proto.Message{proto.Clone(last), proto.Clone(live), proto.Clone(desired)}
			if diff := cmp.Diff(want, merge.ThreeWay(last, live, desired), protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, []proto.Message{last, live, desired}, protocmp.Transform()); diff != "" {
				t.Errorf("its arguments were changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestStatusIsLives(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nstatus:"
	got := merge.ThreeWay(object(t, head, "phase: Failed"), object(t, head, "phase: Running\nhostIP: 10.0.0.1"), object(t, head, "phase: Pending"))
	if diff := cmp.Diff(object(t, head, "phase: Running\nhostIP: 10.0.0.1"), got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWithoutLast(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nspec:"
	got := merge.ThreeWay(nil, object(t, head, "hostPID: true"), object(t, head, "hostIPC: true"))
	if diff := cmp.Diff(object(t, head, "hostPID: true\nhostIPC: true"), got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
