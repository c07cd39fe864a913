package gateway_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry/telemetrytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

// inOrder returns the names of the stages' spans as they began, with the commit.
func inOrder(spans []telemetrytest.Span) []string {
	var names []string
	for _, s := range spans {
		if slices.Contains([]string{"Authentication", "Audit", "Authorization", "Admission", "Txn"}, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// commits counts what reaches the store.
type commits struct {
	mu sync.Mutex
	n  int
}

func (c *commits) watch(s *apitest.Server) {
	s.SetFault(func(op apitest.Operation) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if op.Name == "commit" {
			c.n++
		}
		return nil
	})
}

func (c *commits) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// Every call passes the stages in their order, and what one of them refuses does not reach the next.
func TestStagesInOrder(t *testing.T) {
	spans := telemetrytest.RecordSpans(t, apitest.TraceRoot)
	log := t.TempDir() + "/audit.log"
	s := apitest.NewConfigured(t, apitest.Config{AuditLog: log})
	stored := &commits{}
	stored.watch(s)
	traced := func(name string, conn func() (*client.Resource[*corev1.Pod], func()), p *corev1.Pod, reason apierr.Reason, want ...string) {
		t.Helper()
		before, known := stored.count(), len(spans.AllEnded(t))
		pods, done := conn()
		defer done()
		_, err := pods.Create(t.Context(), p)
		if apierr.ReasonOf(err) != reason {
			t.Errorf("%s: %v, want %q", name, err, reason)
		}
		if got := inOrder(spans.AllEnded(t)[known:]); !slices.Equal(got, want) {
			t.Errorf("%s passes %v, want %v", name, got, want)
		}
		if n, allowed := stored.count()-before, slices.Contains(want, "Txn"); (n > 0) != allowed {
			t.Errorf("%s: %d commits", name, n)
		}
	}
	admin := func() (*client.Resource[*corev1.Pod], func()) { return client.For[*corev1.Pod](s.Conn()), func() {} }
	as := func(user string, groups ...string) func() (*client.Resource[*corev1.Pod], func()) {
		return func() (*client.Resource[*corev1.Pod], func()) {
			conn, err := s.DialAs(rpc.Caller{User: user, Groups: groups})
			if err != nil {
				t.Fatal(err)
			}
			return client.For[*corev1.Pod](conn), func() { _ = conn.Close() }
		}
	}
	traced("a call", admin, newPod("a", nil), "", "Authentication", "Audit", "Authorization", "Admission", "Txn")
	traced("what authorization refuses", as("somebody"), newPod("b", nil), apierr.ReasonForbidden, "Authentication", "Audit", "Authorization")
	traced("what admission refuses", as("system:node:n", "system:nodes"), newPod("c", func(p *corev1.Pod) { p.Spec.NodeName = proto.String("n") }),
		apierr.ReasonForbidden, "Authentication", "Audit", "Authorization", "Admission")
	traced("what validation refuses", admin, newPod("D", nil), apierr.ReasonInvalid, "Authentication", "Audit", "Authorization", "Admission")
	awaitLog(t, log, func(lines []string) bool {
		var codes []string
		for _, l := range lines {
			if strings.Contains(l, `"pods"`) {
				_, rest, _ := strings.Cut(l, `"code":`)
				codes = append(codes, rest[:3])
			}
		}
		return slices.Equal(codes, []string{"200", "403", "403", "422"})
	})
}

// awaitLog waits until the lines of an audit log are as they should be.
func awaitLog(t *testing.T, file string, done func(lines []string) bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		raw, err := os.ReadFile(file)
		if err == nil && done(strings.Split(strings.TrimSpace(string(raw)), "\n")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log says %v:\n%s", err, raw)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// A node's watch of a secret ends within bounded time of the end of the last pod that names it.
func TestAWatchEndsWithWhatItWasAllowedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		pods := client.For[*corev1.Pod](s.Conn())
		if _, err := pods.Create(t.Context(), newPod("a", func(p *corev1.Pod) {
			p.Spec.NodeName = proto.String("n")
			p.Spec.Volumes = []*corev1.Volume{{Name: "v", Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}
		})); err != nil {
			t.Fatal(err)
		}
		conn, err := s.DialAs(rpc.Caller{User: "system:node:n", Groups: []string{"system:nodes"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		watch, err := client.For[*corev1.Secret](conn).Watch(t.Context(), client.WatchOptions{Namespace: "default", FieldSelector: "metadata.name=s"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil { // the end of the initial events
			t.Fatal(err)
		}
		begin := time.Now()
		time.Sleep(5 * time.Minute) // it goes on for as long as the pod is there
		if _, err := pods.Delete(t.Context(), "default", "a", &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(0)}); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, err = watch.Recv()
		}
		if took := time.Since(begin) - 5*time.Minute; !apierr.IsForbidden(err) || took > 40*time.Second || took < 0 {
			t.Errorf("the watch ended %s after the pod with %v, want PERMISSION_DENIED within 40 s", took, err)
		}
	})
}
