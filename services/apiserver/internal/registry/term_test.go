package registry_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

// TestBindUnderALease: who binds for a term is refused once the term is over, by the store itself and not by what a cache
// or a clock says; a renewal is no end.
func TestBindUnderALease(t *testing.T) {
	e := newEnv(t)
	leases := client.For[*coordinationv1.Lease](e.Conn())
	lease := must[*coordinationv1.Lease](t)(leases.Create(t.Context(), &coordinationv1.Lease{
		Metadata: &metav1.ObjectMeta{Namespace: "kube-system", Name: "s"},
		Spec:     &coordinationv1.LeaseSpec{HolderIdentity: proto.String("a"), LeaseTransitions: proto.Int32(3), LeaseDurationSeconds: proto.Int32(15)},
	}))
	write := func(change func(*coordinationv1.LeaseSpec)) {
		change(lease.Spec)
		lease = must[*coordinationv1.Lease](t)(leases.Update(t.Context(), lease))
	}
	renew := func() {
		write(func(s *coordinationv1.LeaseSpec) {
			s.LeaseDurationSeconds = proto.Int32(s.GetLeaseDurationSeconds() + 1)
		})
	}
	pass := func() {
		write(func(s *coordinationv1.LeaseSpec) {
			s.HolderIdentity, s.LeaseTransitions = proto.String("b"), proto.Int32(s.GetLeaseTransitions()+1)
		})
	}
	claim := func(holder string, transitions int32) *coordinationv1.LeaseClaim {
		return &coordinationv1.LeaseClaim{Namespace: "kube-system", Name: "s", HolderIdentity: holder, LeaseTransitions: transitions}
	}
	n := 0
	// bind binds a new pod; beside happens between the gateway's look at the lease and the commit.
	bind := func(c *coordinationv1.LeaseClaim, beside func()) *corev1.BindError {
		t.Helper()
		n++
		name := fmt.Sprintf("p%d", n)
		must[*corev1.Pod](t)(e.pods.Create(t.Context(), pod(name)))
		if beside != nil {
			var once sync.Once
			e.SetFault(func(op apitest.Operation) error {
				if op.Name == "commit" && !op.Done && strings.HasPrefix(op.Key, "/trireme/core/pods/") {
					once.Do(func() { e.SetFault(nil); beside() })
				}
				return nil
			})
		}
		resp := must[*corev1.BindResponse](t)(e.raw.Bind(t.Context(), &corev1.BindRequest{Lease: c, Groups: []*corev1.BindGroup{{
			Bindings: []*corev1.Binding{{Namespace: "default", PodName: name, NodeName: "n1"}},
		}}}))
		err := resp.GetResults()[0].GetError()
		if node := must[*corev1.Pod](t)(e.pods.Get(t.Context(), "default", name)).GetSpec().GetNodeName(); (node == "") != (err != nil) {
			t.Fatalf("answered %v, pod is on node %q", err, node)
		}
		return err
	}
	refused := func(c *coordinationv1.LeaseClaim, beside func(), text string) {
		t.Helper()
		if err := bind(c, beside); err.GetReason() != "FailedPrecondition" || !strings.Contains(err.GetMessage(), text) {
			t.Errorf("bind for %v: %v, want a failed precondition that says %q", c, err, text)
		}
	}
	bound := func(c *coordinationv1.LeaseClaim, beside func()) {
		t.Helper()
		if err := bind(c, beside); err != nil {
			t.Errorf("bind for %v: %v", c, err)
		}
	}

	bound(claim("a", 3), nil)
	renew()
	bound(claim("a", 3), nil)
	bound(claim("a", 3), renew)
	refused(claim("a", 2), nil, "for another term")
	refused(claim("c", 3), nil, `held by "a", not by "c"`)
	refused(&coordinationv1.LeaseClaim{Namespace: "kube-system", Name: "none", HolderIdentity: "a"}, nil, "does not exist")
	refused(claim("a", 3), pass, `held by "b", not by "a"`)
	refused(claim("a", 3), nil, `held by "b", not by "a"`)
	bound(claim("b", 4), nil)
	bound(nil, nil)

	// Many in one call share transactions: a renewal in between stops none of them, the end of the term all.
	many := func(c *coordinationv1.LeaseClaim, beside func()) (done int) {
		var groups []*corev1.BindGroup
		for range 40 {
			n++
			name := fmt.Sprintf("p%d", n)
			must[*corev1.Pod](t)(e.pods.Create(t.Context(), pod(name)))
			groups = append(groups, &corev1.BindGroup{Bindings: []*corev1.Binding{{Namespace: "default", PodName: name, NodeName: "n1"}}})
		}
		first := make(chan struct{}) // commits go side by side: none is to be done before what happens beside them
		var once sync.Once
		e.SetFault(func(op apitest.Operation) error {
			if op.Name == "commit" && !op.Done && strings.HasPrefix(op.Key, "/trireme/core/pods/") {
				once.Do(func() { beside(); close(first) })
				<-first
			}
			return nil
		})
		defer e.SetFault(nil)
		for _, r := range must[*corev1.BindResponse](t)(e.raw.Bind(t.Context(), &corev1.BindRequest{Lease: c, Groups: groups})).GetResults() {
			if r.GetError() == nil {
				done++
			} else if r.GetError().GetReason() != "FailedPrecondition" {
				t.Errorf("%v, want a failed precondition", r)
			}
		}
		return done
	}
	if done := many(claim("b", 4), renew); done != 40 {
		t.Errorf("%d of 40 pods bound beside a renewal", done)
	}
	if done := many(claim("b", 4), func() {
		write(func(s *coordinationv1.LeaseSpec) {
			s.HolderIdentity, s.LeaseTransitions = proto.String("c"), proto.Int32(5)
		})
	}); done != 0 {
		t.Errorf("%d pods bound for a term that was over", done)
	}
}
