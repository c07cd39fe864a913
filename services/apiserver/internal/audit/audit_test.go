package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry/telemetrytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/request"
)

func TestMain(m *testing.M) {
	// lumberjack keeps one for the life of the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

func call(verb, resource, subresource, namespace, name string, edit ...func(*request.Attributes)) *request.Attributes {
	a := &request.Attributes{
		Method: &request.Method{Path: "/trireme.core.v1.XService/Y", Verb: verb, Version: "v1", Resource: resource},
		Caller: rpc.Caller{User: "u", Groups: []string{"g", "system:authenticated"}}, Subresource: subresource, Namespace: namespace, Name: name,
	}
	for _, e := range edit {
		e(a)
	}
	return a
}

const policyFile = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: ["system:trireme-scheduler"]
    verbs: [get, list, watch]
  - level: Request
    resources:
      - group: ""
        resources: [pods, pods/status]
    namespaces: [default]
  - level: Metadata
    resources:
      - group: ""
        resources: ["pods/*"]
  - level: RequestResponse
    resources:
      - group: ""
        resources: [configmaps]
        resourceNames: [one]
      - group: apps
      - group: ""
        resources: [secrets]
  - level: Metadata
    nonResourceURLs: ["/grpc.health.v1.Health/*"]
  - level: None
    userGroups: [nobody]
`

func contextThatHasEnded() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx, cancel
}

func TestFirstMatchingRuleCounts(t *testing.T) {
	p, err := parse([]byte(policyFile))
	if err != nil {
		t.Fatal(err)
	}
	plain := func(path string) *request.Attributes {
		return &request.Attributes{Method: &request.Method{Path: path, Verb: "create"}, Caller: rpc.Caller{User: "u"}}
	}
	for _, tt := range []struct {
		at   *request.Attributes
		want Level
	}{
		{call("get", "pods", "", "default", "a", func(a *request.Attributes) { a.Caller.User = "system:trireme-scheduler" }), None},
		{call("create", "pods", "", "default", "a", func(a *request.Attributes) { a.Caller.User = "system:trireme-scheduler" }), Request},
		{call("get", "pods", "", "default", "a"), Request},
		{call("update", "pods", "status", "default", "a"), Request},
		{call("update", "pods", "status", "other", "a"), Metadata},
		{call("create", "pods", "eviction", "default", "a"), Metadata},
		{call("get", "pods", "", "other", "a"), None},
		{call("get", "configmaps", "", "x", "one"), RequestResponse},
		{call("get", "configmaps", "", "x", "two"), None},
		{call("get", "deployments", "", "x", "two", func(a *request.Attributes) { m := *a.Method; m.Group = "apps"; a.Method = &m }), RequestResponse},
		{call("get", "secrets", "", "x", "two"), Metadata}, // bodies of secrets are never told
		{call("watch", "configmaps", "", "x", "one", func(a *request.Attributes) { m := *a.Method; m.Long = true; a.Method = &m }), Metadata},
		{plain("/grpc.health.v1.Health/Check"), Metadata},
		{plain("/grpc.reflection.v1.ServerReflection/X"), None},
	} {
		if got := p.of(tt.at).level; got != tt.want {
			t.Errorf("%s %s/%s %s/%s %s: %s, want %s", tt.at.Verb, tt.at.Resource, tt.at.Subresource, tt.at.Namespace, tt.at.Name, tt.at.Path, got, tt.want)
		}
	}
}

func TestMistakesInAPolicyAreNamedWithTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "empty",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: All\n":                                                    `line 4: level "All": want one of None, Metadata, Request, RequestResponse`,
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  user: [a]\n":                                      "line 5: unknown field user",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n- users: [a]\n":                                     "line 5: rules[1].level: Required value",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: []\n":                                                               "at least one",
		"apiVersion: v1\nkind: Pod\nrules:\n- level: None\n":                                                                   "want audit.k8s.io/v1 and Policy",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [Begin]\nrules:\n- level: None\n":                              `line 3: stage "Begin"`,
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  nonResourceURLs: [x]\n":                           "line 4: rules[0].nonResourceURLs",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  nonResourceURLs: [/x]\n  namespaces: [a]\n":       "cannot apply to both",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n---\napiVersion: audit.k8s.io/v1\n":                 "more than one document",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: [None\n":                                                  "line",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  resources:\n  - group: a\n    resource: [pods]\n": "line 7: unknown field resource",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// lines of the log after it has run to its end.
func lines(t *testing.T, l *Log, file string) []map[string]any {
	t.Helper()
	// All that waits, however slow the machine: a log that ends gives up after a while.
	for len(l.waiting) > 0 {
		i := <-l.waiting
		l.write(&i)
	}
	ctx, cancel := contextThatHasEnded()
	defer cancel()
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for line := range strings.Lines(string(raw)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		out = append(out, e)
	}
	return out
}

func TestEventsHaveKubernetesShape(t *testing.T) {
	p, err := parse([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitManagedFields: true\nrules:\n- level: RequestResponse\n"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "audit.log")
	l := New(Config{File: file, Policy: p, Logger: slog.New(slog.DiscardHandler)})
	object := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{
		Namespace: "default", Name: "one", ManagedFields: []*metav1.ManagedFieldsEntry{{Manager: proto.String("m")}},
	}, Data: map[string]string{"k": "v"}}
	raw, err := proto.Marshal(&corev1.CreateConfigMapRequest{Object: object})
	if err != nil {
		t.Fatal(err)
	}
	r := l.Begin(Call{
		Attributes: call("create", "configmaps", "", "default", "one"), Source: "10.0.0.1", Request: raw,
		RequestType: (&corev1.CreateConfigMapRequest{}).ProtoReflect().Type(), ResponseType: object.ProtoReflect().Type(),
	})
	if !r.WantsResponse() {
		t.Fatal("the answer is not wanted")
	}
	answer, err := proto.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	r.End(Status{Code: 200}, answer)
	got := lines(t, l, file)
	if len(got) != 2 || got[0]["stage"] != "RequestReceived" || got[1]["stage"] != "ResponseComplete" || got[0]["auditID"] != got[1]["auditID"] {
		t.Fatalf("events %v", got)
	}
	e := got[1]
	for path, want := range map[string]string{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "verb": "create", "requestURI": "/trireme.core.v1.XService/Y",
		"user": "map[groups:[g system:authenticated] username:u]", "sourceIPs": "[10.0.0.1]",
		"objectRef":      "map[apiVersion:v1 name:one namespace:default resource:configmaps]",
		"requestObject":  "map[apiVersion:v1 data:map[k:v] kind:ConfigMap metadata:map[name:one namespace:default]]",
		"responseObject": "map[apiVersion:v1 data:map[k:v] kind:ConfigMap metadata:map[name:one namespace:default]]",
		"responseStatus": "map[code:200 metadata:map[]]", "annotations": "map[authorization.k8s.io/decision:allow]",
	} {
		if have := fmt.Sprint(e[path]); have != want {
			t.Errorf("%s is %s, want %s", path, have, want)
		}
	}
}

func TestStagesOfALongCall(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	p, err := parse([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := New(Config{File: file, Policy: p, Logger: slog.New(slog.DiscardHandler)})
	r := l.Begin(Call{Attributes: call("watch", "pods", "", "", "")})
	r.Started()
	r.Started()
	r.Panicked()
	var stages []string
	for _, e := range lines(t, l, file) {
		stages = append(stages, e["stage"].(string))
	}
	if got := strings.Join(stages, " "); got != "RequestReceived ResponseStarted Panic" {
		t.Errorf("stages %s", got)
	}
}

// A call is never held up: what nobody writes is dropped and counted.
func TestWhatCannotBeWrittenIsDroppedAndCounted(t *testing.T) {
	m := telemetrytest.RecordMetrics(t)
	file := filepath.Join(t.TempDir(), "audit.log")
	p, err := parse([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Request\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := New(Config{File: file, Policy: p, Logger: slog.New(slog.DiscardHandler)})
	for range maxWaiting + 5 {
		l.Begin(Call{Attributes: call("create", "pods", "", "", "a")}).End(Status{Code: 200}, nil)
	}
	if got := m.Values(t, "apiserver_audit_error_total")["plugin=log"]; got != 5 {
		t.Errorf("%v dropped, want 5", got)
	}
	if n := len(lines(t, l, file)); n != maxWaiting {
		t.Errorf("%d written, want %d", n, maxWaiting)
	}
	big := make([]byte, maxWaitingBytes+1)
	l.Begin(Call{Attributes: call("create", "pods", "", "", "a"), Request: big}).End(Status{Code: 200}, nil)
	l.Begin(Call{Attributes: call("create", "pods", "", "", "b")}).End(Status{Code: 200}, nil)
	if got := m.Values(t, "apiserver_audit_error_total")["plugin=log"]; got != 6 {
		t.Errorf("%v dropped, want 6", got)
	}
	if n := len(lines(t, l, file)); n != maxWaiting+1 {
		t.Errorf("%d written, want %d", n, maxWaiting+1)
	}
	if got := m.Values(t, "apiserver_audit_event_total")[""]; got != maxWaiting+7 {
		t.Errorf("%v events, want %d", got, maxWaiting+7)
	}
	// A file that cannot be written is no reason to fail either.
	bad := New(Config{File: filepath.Join(t.TempDir(), "missing", "\x00"), Policy: p, Logger: slog.New(slog.DiscardHandler)})
	bad.Begin(Call{Attributes: call("create", "pods", "", "", "a")}).End(Status{Code: 200}, nil)
	ctx, cancel := contextThatHasEnded()
	defer cancel()
	if err := bad.Run(ctx); err != nil {
		t.Error(err)
	}
	if got := m.Values(t, "apiserver_audit_error_total")["plugin=log"]; got != 7 {
		t.Errorf("%v dropped, want 7", got)
	}
}
