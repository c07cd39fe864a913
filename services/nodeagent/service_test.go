package nodeagent

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

// service dials the agent's own socket.
func (c *cluster) service() nodev1.NodeServiceClient {
	c.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: "unix://" + c.config().Socket})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if err := conn.Close(); err != nil {
			c.Error(err)
		}
	})
	return nodev1.NewNodeServiceClient(conn)
}

func logsOf(t *testing.T, s nodev1.NodeServiceClient, p *corev1.Pod, request *corev1.LogsRequest) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := s.Logs(ctx, &nodev1.NodeLogsRequest{PodUid: p.GetMetadata().GetUid(), Request: request})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return out.String(), apierr.FromStatus(err)
		}
		out.Write(piece.GetData())
	}
}

func TestLogs(t *testing.T) {
	c := start(t)
	s := c.service()
	talker := pod("talker", "sh", "-c", "echo one; echo two; sleep 1; echo three")
	talker.Spec.RestartPolicy = proto.String("Never")
	p := c.create(talker)
	c.waitPod("talker", running)
	// Follows until the container ends.
	got, err := logsOf(t, s, p, &corev1.LogsRequest{Follow: true, TailLines: proto.Int64(1)})
	if err != nil || !strings.HasSuffix(got, "two\nthree\n") || strings.Contains(got, "one") {
		t.Errorf("followed %q %v", got, err)
	}
	c.waitPod("talker", func(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Succeeded" })
	// The runtime has nothing of the pod any more; its log stays until the pod is deleted.
	got, err = logsOf(t, s, p, &corev1.LogsRequest{Container: "main"})
	if err != nil || !strings.HasSuffix(got, "one\ntwo\nthree\n") {
		t.Errorf("read %q %v", got, err)
	}
	if _, err := logsOf(t, s, p, &corev1.LogsRequest{Previous: true}); !apierr.IsNotFound(err) {
		t.Errorf("previous of the first run: %v", err)
	}
	if _, err := logsOf(t, s, p, &corev1.LogsRequest{Container: "other"}); !apierr.IsInvalid(err) || !strings.Contains(err.Error(), "container other is not valid for pod default/talker") {
		t.Errorf("another container: %v", err)
	}
	if _, err := logsOf(t, s, &corev1.Pod{}, &corev1.LogsRequest{Namespace: "default", Name: "none"}); !apierr.IsNotFound(err) {
		t.Errorf("another pod: %v", err)
	}
}

func TestLogsOfAContainerThatRestarts(t *testing.T) {
	c := start(t)
	s := c.service()
	p := c.create(pod("crash", "sh", "-c", "echo hello; exit 1"))
	c.waitPod("crash", func(p *corev1.Pod) bool {
		return mainStatus(p).GetState().GetWaiting().GetReason() == "CrashLoopBackOff"
	})
	for _, previous := range []bool{false, true} {
		if got, err := logsOf(t, s, p, &corev1.LogsRequest{Previous: previous}); err != nil || !strings.Contains(got, "hello\n") {
			t.Errorf("previous=%v: %q %v", previous, got, err)
		}
	}
	noImage := pod("noimage")
	noImage.Spec.Containers[0].Image = "absent/thing:1"
	p = c.create(noImage)
	c.waitPod("noimage", func(p *corev1.Pod) bool {
		return mainStatus(p).GetState().GetWaiting().GetReason() == "ImagePullBackOff"
	})
	_, err := logsOf(t, s, p, &corev1.LogsRequest{})
	if want := `container "main" in pod "noimage" is waiting to start: ImagePullBackOff`; !apierr.IsInvalid(err) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func exec(t *testing.T, s nodev1.NodeServiceClient, p *corev1.Pod, start *corev1.ExecStart, stdin string) (stdout, stderr string, exit *corev1.ExitStatus, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := s.Exec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *corev1.ExecRequest) {
		// An error of a send comes with the receive.
		_ = stream.Send(&nodev1.NodeExecRequest{PodUid: p.GetMetadata().GetUid(), Request: r})
	}
	send(&corev1.ExecRequest{Message: &corev1.ExecRequest_Start{Start: start}})
	if start.GetStdin() {
		send(&corev1.ExecRequest{Message: &corev1.ExecRequest_Stdin{Stdin: []byte(stdin)}})
		send(&corev1.ExecRequest{Message: &corev1.ExecRequest_CloseStdin{CloseStdin: true}})
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stdout, stderr, exit, nil
		}
		if err != nil {
			return stdout, stderr, exit, apierr.FromStatus(err)
		}
		stdout += string(r.GetStdout())
		stderr += string(r.GetStderr())
		if e := r.GetExit(); e != nil {
			exit = e
		}
	}
}

func TestExec(t *testing.T) {
	c := start(t)
	s := c.service()
	p := c.create(pod("web", "serve"))
	c.waitPod("web", running)
	out, _, exit, err := exec(t, s, p, &corev1.ExecStart{Command: []string{"echo", "hi"}, Stdout: true}, "")
	if err != nil || out != "hi\n" || exit.GetCode() != 0 {
		t.Errorf("echo: %q %v %v", out, exit, err)
	}
	out, _, exit, err = exec(t, s, p, &corev1.ExecStart{Command: []string{"cat"}, Stdin: true, Stdout: true}, "typed")
	if err != nil || out != "typed" || exit.GetCode() != 0 {
		t.Errorf("cat: %q %v %v", out, exit, err)
	}
	_, _, exit, err = exec(t, s, p, &corev1.ExecStart{Command: []string{"exit", "3"}}, "")
	if err != nil || exit.GetCode() != 3 || exit.GetMessage() != "command terminated with exit code 3" {
		t.Errorf("exit: %v %v", exit, err)
	}
	_, stderr, exit, err := exec(t, s, p, &corev1.ExecStart{Command: []string{"nosuch"}, Stderr: true}, "")
	if err != nil || exit.GetCode() != 127 || stderr == "" {
		t.Errorf("nosuch: %q %v %v", stderr, exit, err)
	}
	waits := pod("waits")
	waits.Spec.Containers[0].Image = "absent/thing:1"
	p = c.create(waits)
	c.waitPod("waits", func(p *corev1.Pod) bool { return mainStatus(p).GetState().GetWaiting() != nil })
	if _, _, _, err = exec(t, s, p, &corev1.ExecStart{Command: []string{"echo"}}, ""); !apierr.IsInvalid(err) {
		t.Errorf("exec in a container that does not run: %v", err)
	}
}

func TestPortForwardToASimulatedPodIsRefused(t *testing.T) {
	c := start(t)
	s := c.service()
	p := c.create(pod("web", "serve"))
	c.waitPod("web", running)
	stream, err := s.PortForward(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&nodev1.NodePortForwardRequest{PodUid: p.GetMetadata().GetUid(), Request: &corev1.PortForwardRequest{
		Message: &corev1.PortForwardRequest_Start{Start: &corev1.PortForwardStart{Port: 80}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !apierr.IsInvalid(apierr.FromStatus(err)) {
		t.Errorf("got %v", err)
	}
}

func TestInfoAndNodeNames(t *testing.T) {
	c := start(t)
	s := c.service()
	info, err := s.GetInfo(t.Context(), &nodev1.GetInfoRequest{NodeName: "sim-0"})
	if err != nil || !info.GetSimulated() || info.GetRuntimeName() != "simulated" || info.GetNodeName() != "sim-0" {
		t.Errorf("info %v %v", info, err)
	}
	if _, err := s.ListImages(t.Context(), &nodev1.ListImagesRequest{NodeName: "sim-0"}); err != nil {
		t.Error(err)
	}
	if _, err := s.ListImages(t.Context(), &nodev1.ListImagesRequest{NodeName: "other"}); !apierr.IsNotFound(apierr.FromStatus(err)) {
		t.Errorf("another node: %v", err)
	}
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// identities makes the agent's certificate and those of callers by user name.
func identities(t *testing.T, dir string) (cert, key, ca string, callers map[string]pki.Files) {
	t.Helper()
	authority, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string, id pki.Identity) pki.Files {
		files, err := authority.Issue(dir, name, id)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	own := issue("node", pki.Identity{CommonName: "system:node:sim-0", Organizations: []string{"system:nodes"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	return own.Cert, own.Key, own.CA, map[string]pki.Files{
		"system:trireme-apiserver": issue("gateway", pki.Identity{CommonName: "system:trireme-apiserver"}),
		"system:node:other":        issue("other", pki.Identity{CommonName: "system:node:other", Organizations: []string{"system:nodes"}}),
	}
}

func TestOnlyTheGatewayMayCall(t *testing.T) {
	c := start(t)
	dir := shortDir(t)
	cert, key, ca, callers := identities(t, dir)
	c.stop()
	secure := c.config()
	secure.Socket, secure.Listen, secure.Gateway.CertFile, secure.Gateway.KeyFile, secure.Gateway.CAFile = "", "127.0.0.1:0", cert, key, ca
	c.startWith(secure)
	n := c.waitNode(func(n *corev1.Node) bool {
		return n.GetStatus().GetDaemonEndpoints().GetKubeletEndpoint().GetPort() > 0
	})
	address := n.GetStatus().GetAddresses()[0].GetAddress() + ":" + itoa(n.GetStatus().GetDaemonEndpoints().GetKubeletEndpoint().GetPort())
	for user, allowed := range map[string]bool{"system:trireme-apiserver": true, "system:node:other": false} {
		conn, err := rpc.Dial(rpc.ClientConfig{Address: address, CertFile: callers[user].Cert, KeyFile: callers[user].Key, CAFile: ca})
		if err != nil {
			t.Fatal(err)
		}
		_, err = nodev1.NewNodeServiceClient(conn).GetInfo(t.Context(), &nodev1.GetInfoRequest{NodeName: "sim-0"}, grpc.WaitForReady(true))
		if err = apierr.FromStatus(err); (err == nil) != allowed || (!allowed && !apierr.IsForbidden(err)) {
			t.Errorf("%s: %v", user, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
