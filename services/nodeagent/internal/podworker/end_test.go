package podworker

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

func TestPodsThatTheGatewayLostAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		a.create(newPod("forced", "serve"))
		a.create(newPod("while-away", "serve"))
		a.create(newPod("stays", "serve"))
		after(time.Second)
		a.delete("forced", 0)
		after(3 * time.Second)
		if n := len(a.seen()); n != 2 {
			t.Errorf("%d pods run after a forced deletion", n)
		}
		a.stop()
		a.delete("while-away", 0)
		a.start()
		after(3 * time.Second)
		if pods := a.seen(); len(pods) != 1 || pods[0].Name != "stays" || mainOf(a.get("stays")).GetRestartCount() != 0 {
			t.Errorf("after a restart of the agent: %v", pods)
		}
	})
}

func TestNothingIsRemovedBeforeTheGatewayIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		a.create(newPod("web", "serve"))
		after(time.Second)
		a.stop()
		a.gateway.SetFault(func(apitest.Operation) error { return apitest.ErrUnavailable })
		a.start()
		after(time.Minute)
		if n := len(a.seen()); n != 1 {
			t.Errorf("%d pods run while the gateway is away", n)
		}
		a.gateway.SetFault(nil)
		after(time.Minute)
		if s := mainOf(a.get("web")); s.GetRestartCount() != 0 || s.GetState().GetRunning() == nil {
			t.Errorf("container: %v", s)
		}
	})
}

func TestHowAPodEndedIsNeverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		p := newPod("job", "sh", "-c", "sleep 5; exit 7")
		p.Spec.RestartPolicy = proto.String("Never")
		a.create(p)
		after(time.Second)
		a.gateway.SetFault(func(apitest.Operation) error { return apitest.ErrUnavailable })
		after(time.Minute)
		if n := len(a.seen()); n != 1 {
			t.Fatalf("%d pods are known to the runtime before the end was written", n)
		}
		a.stop()
		a.start()
		a.gateway.SetFault(nil)
		after(time.Minute)
		got := a.get("job")
		if got.GetStatus().GetPhase() != "Failed" || mainOf(got).GetState().GetTerminated().GetExitCode() != 7 || mainOf(got).GetRestartCount() != 0 {
			t.Errorf("status: %v", got.GetStatus())
		}
		if len(a.seen()) > 0 {
			t.Errorf("left over: %v", a.seen())
		}
	})
}

func TestContainerThatDoesNotStopIsNotStoppedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		a.create(newPod("web", "serve"))
		after(time.Second)
		var stops atomic.Int32
		a.runtime.onStop = func(string) error {
			stops.Add(1)
			return errors.New("stuck")
		}
		if _, err := a.pods.Patch(t.Context(), "default", "web", metav1.PatchType_PATCH_TYPE_JSON,
			[]byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"busybox:2"}]`), ""); err != nil {
			t.Fatal(err)
		}
		after(8 * time.Second)
		if n := stops.Load(); n != 4 {
			t.Errorf("%d tries in 8 s", n)
		}
	})
}

func TestEndBeforeTheRuntimeIsListenedToIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		a.stop()
		a.runtime.listenTime = 3 * time.Second
		a.start()
		p := newPod("job", "sh", "-c", "sleep 1; exit 7")
		p.Spec.RestartPolicy = proto.String("Never")
		a.create(p)
		after(4 * time.Second)
		if phase := a.get("job").GetStatus().GetPhase(); phase != "Failed" {
			t.Errorf("phase %s", phase)
		}
	})
}

func TestDevicesOfALostPodAreHeldUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		uid := a.create(newPod("gpu", "serve")).GetMetadata().GetUid()
		after(time.Second)
		a.stop()
		a.delete("gpu", 0)
		path := a.dir + "/devices.json"
		// As a device manager leaves it that has given the pod a device.
		held := fmt.Sprintf(`{"devices":{},"allocations":{%q:{"main":{"vendor.example/gpu":{"ids":["0"],"response":""}}}}}`, uid)
		file := fmt.Sprintf(`{"data":%s,"checksum":"%x"}`, held, sha256.Sum256([]byte(held)))
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		holds := func() bool {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(data), uid)
		}
		var heldAtStop atomic.Bool
		a.runtime.onStop = func(string) error {
			heldAtStop.Store(holds())
			return nil
		}
		a.start()
		after(5 * time.Second)
		if !heldAtStop.Load() {
			t.Error("its devices were free while it ran")
		}
		if len(a.seen()) > 0 || holds() {
			t.Errorf("left over: %v, devices held: %v", a.seen(), holds())
		}
	})
}

func TestEndOfTheLogBecomesTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		for name, policy := range map[string]string{"log": "FallbackToLogsOnError", "file": "File"} {
			p := newPod(name, "sh", "-c", "echo boom; exit 1")
			p.Spec.RestartPolicy = proto.String("Never")
			p.Spec.Containers[0].TerminationMessagePolicy = proto.String(policy)
			a.create(p)
		}
		after(time.Second)
		if m := mainOf(a.get("log")).GetState().GetTerminated().GetMessage(); !strings.HasSuffix(m, "boom\n") {
			t.Errorf("message %q", m)
		}
		if m := mainOf(a.get("file")).GetState().GetTerminated().GetMessage(); m != "" {
			t.Errorf("message %q", m)
		}
	})
}

func TestSidecarStopsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		p := newPod("web", "sh", "-c", `trap "" TERM; sleep infinity`)
		p.Spec.InitContainers = []*corev1.Container{{
			Name: "proxy", Image: "busybox:1", Command: []string{"serve"}, RestartPolicy: proto.String("Always"),
		}}
		a.create(p)
		after(time.Second)
		a.delete("web", 10)
		after(9 * time.Second)
		if s := a.get("web").GetStatus().GetInitContainerStatuses()[0]; s.GetState().GetRunning() == nil {
			t.Errorf("the sidecar has ended before the app: %v", s)
		}
		after(4 * time.Second)
		if !a.gone("web") {
			t.Error("the pod is there")
		}
	})
}
