package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/informer"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
	"trireme.dev/services/nodeagent/internal/devices"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/simulated"
)

type fixture struct {
	*testing.T
	gateway *apitest.Server
	nodes   *client.Resource[*corev1.Node]
	runtime runtime.Runtime
	stop    func()
}

// noNetwork is a runtime that can give pods no addresses.
type noNetwork struct{ *simulated.Runtime }

func (noNetwork) SetPodCIDR(context.Context, string) error { return errors.New("no bridge") }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	r, err := simulated.New(simulated.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, gateway: apitest.New(t), runtime: r}
	f.nodes = client.For[*corev1.Node](f.gateway.Conn())
	return f
}

func (f *fixture) start() {
	f.Helper()
	logger := slog.New(slog.DiscardHandler)
	dir := f.TempDir()
	plugins, err := devices.New(devices.Config{PluginDir: dir, StateDir: dir, Logger: logger})
	if err != nil {
		f.Fatal(err)
	}
	factory := informer.NewFactory(f.gateway.Conn(), logger)
	m, err := New(Config{
		Name: "n1", IPs: []string{"192.0.2.1"}, Port: func() int32 { return 10250 }, Version: "v1", StateDir: dir,
		Machine: &Machine{CPUMillis: 4000, MemoryBytes: 8 << 30, StorageBytes: 1 << 30}, Labels: map[string]string{"zone": "a"}, Wake: func() {},
	}, Deps{Conn: f.gateway.Conn(), Factory: factory, Runtime: f.runtime, Devices: plugins, Logger: logger})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{factory.Run, m.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				f.Errorf("a task ended: %v", err)
			}
		})
	}
	f.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	f.Cleanup(f.stop)
}

func (f *fixture) get() *corev1.Node {
	f.Helper()
	n, err := f.nodes.Get(f.Context(), "", "n1")
	if err != nil {
		f.Fatal(err)
	}
	return n
}

func (f *fixture) patch(patch string) {
	f.Helper()
	if _, err := f.nodes.Patch(f.Context(), "", "n1", metav1.PatchType_PATCH_TYPE_MERGE, []byte(patch), ""); err != nil {
		f.Fatal(err)
	}
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func condition(n *corev1.Node, kind string) *corev1.NodeCondition {
	for _, c := range n.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

func TestRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.start()
		synctest.Wait()
		n := f.get()
		for name, want := range map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "1Gi"} {
			if got := n.GetStatus().GetAllocatable()[name]; got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		for name, want := range map[string]string{"kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux", "zone": "a"} {
			if got := n.GetMetadata().GetLabels()[name]; got != want {
				t.Errorf("label %s: %s, want %s", name, got, want)
			}
		}
		if n.GetStatus().GetDaemonEndpoints().GetKubeletEndpoint().GetPort() != 10250 || n.GetStatus().GetAddresses()[0].GetAddress() != "192.0.2.1" {
			t.Errorf("status: %v", n.GetStatus())
		}
		if c := condition(n, "Ready"); c.GetStatus() != "False" || c.GetMessage() != "container runtime network not ready: waiting for spec.podCIDR of the node" {
			t.Errorf("before the CIDR: %v", c)
		}
		f.patch(`{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`)
		synctest.Wait()
		if c := condition(f.get(), "Ready"); c.GetStatus() != "True" {
			t.Errorf("with the CIDR: %v", c)
		}
	})
}

func TestWhatOthersSetStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.start()
		synctest.Wait()
		f.patch(`{"metadata":{"labels":{"team":"x"}},"spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]}}`)
		n := f.get()
		n.Status.Conditions = append(n.Status.Conditions, &corev1.NodeCondition{Type: "example.com/own", Status: "True"})
		if _, err := f.nodes.UpdateStatus(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		f.stop()
		f.start()
		after(6 * time.Minute)
		n = f.get()
		if n.GetMetadata().GetLabels()["team"] != "x" || !n.GetSpec().GetUnschedulable() || len(n.GetSpec().GetTaints()) != 1 || condition(n, "example.com/own") == nil {
			t.Errorf("node: %v", n)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.start()
		leases := client.For[*coordinationv1.Lease](f.gateway.Conn())
		after(time.Second)
		first, version := condition(f.get(), "Ready").GetLastHeartbeatTime().AsTime(), f.get().GetMetadata().GetResourceVersion()
		after(4 * time.Minute)
		if got := f.get().GetMetadata().GetResourceVersion(); got != version {
			t.Error("a status without news was written within five minutes")
		}
		l, err := leases.Get(t.Context(), leaseNamespace, "n1")
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(l.GetSpec().GetRenewTime().AsTime()); age > 11*time.Second || l.GetSpec().GetLeaseDurationSeconds() != 40 {
			t.Errorf("lease renewed %s ago: %v", age, l.GetSpec())
		}
		if o := l.GetMetadata().GetOwnerReferences(); len(o) != 1 || o[0].GetUid() != f.get().GetMetadata().GetUid() {
			t.Errorf("owner of the lease: %v", o)
		}
		after(90 * time.Second)
		if got := condition(f.get(), "Ready").GetLastHeartbeatTime().AsTime(); got.Sub(first) < 5*time.Minute {
			t.Errorf("heartbeat %s after the first", got.Sub(first))
		}
	})
}

func TestNodeWithoutNetworkDoesNotStayReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.start()
		synctest.Wait()
		f.patch(`{"spec":{"podCIDR":"10.1.0.0/24"}}`)
		after(time.Second)
		if c := condition(f.get(), "Ready"); c.GetStatus() != "True" {
			t.Fatalf("condition: %v", c)
		}
		f.stop()
		r, err := simulated.New(simulated.Config{})
		if err != nil {
			t.Fatal(err)
		}
		f.runtime = noNetwork{r}
		f.start()
		after(time.Second)
		if c := condition(f.get(), "Ready"); c.GetStatus() != "False" {
			t.Errorf("condition after a restart without network: %v", c)
		}
	})
}

func TestDeletedNodeStaysDeletedUntilTheAgentIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		leases := client.For[*coordinationv1.Lease](f.gateway.Conn())
		remove := func() {
			t.Helper()
			if _, err := f.nodes.Delete(t.Context(), "", "n1", &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(0)}); err != nil {
				t.Fatal(err)
			}
			if _, err := leases.Delete(t.Context(), leaseNamespace, "n1", nil); err != nil {
				t.Fatal(err)
			}
		}
		f.start()
		synctest.Wait()
		remove()
		after(10 * time.Minute)
		if _, err := f.nodes.Get(t.Context(), "", "n1"); !apierr.IsNotFound(err) {
			t.Errorf("the deleted node is there again: %v", err)
		}
		if _, err := leases.Get(t.Context(), leaseNamespace, "n1"); !apierr.IsNotFound(err) {
			t.Errorf("its lease is there again: %v", err)
		}
		f.stop()
		f.start()
		after(time.Second)
		if condition(f.get(), "Ready") == nil {
			t.Errorf("after a restart: %v", f.get())
		}
		// Made anew by somebody, it is taken up.
		remove()
		after(time.Second)
		if _, err := f.nodes.Create(t.Context(), &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n1"}}); err != nil {
			t.Fatal(err)
		}
		after(15 * time.Second)
		if condition(f.get(), "Ready") == nil {
			t.Errorf("made anew: %v", f.get())
		}
		if _, err := leases.Get(t.Context(), leaseNamespace, "n1"); err != nil {
			t.Errorf("its lease: %v", err)
		}
	})
}

func TestGatewayAwayAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.gateway.SetFault(func(apitest.Operation) error { return apitest.ErrUnavailable })
		f.start()
		after(time.Minute)
		f.gateway.SetFault(nil)
		after(2 * time.Second)
		if condition(f.get(), "Ready") == nil {
			t.Errorf("node: %v", f.get())
		}
	})
}
