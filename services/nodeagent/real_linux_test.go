//go:build linux && realruntime

package nodeagent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/apiserver/apitest"
)

// repository is the folder of go.work.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.work above the test")
	return ""
}

// TestRealContainers runs in a network and with mounts of its own, so that the machine's stay as they are.
func TestRealContainers(t *testing.T) {
	const inside = "TRIREME_TEST_INSIDE"
	if os.Getenv(inside) == "" {
		cmd := osexec.Command("/proc/self/exe", "-test.run=^TestRealContainers$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	realContainers(t)
}

func realContainers(t *testing.T) {
	run, err := os.MkdirTemp("/run", "tr-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	gateway := apitest.New(t)
	c := &cluster{T: t, gateway: gateway, conn: gateway.Conn(), dir: shortDir(t)}
	c.pods, c.nodes = client.For[*corev1.Pod](c.conn), client.For[*corev1.Node](c.conn)
	cfg := Config{
		Gateway: rpc.ClientConfig{Address: "unused"}, StateDir: c.dir, RunDir: run, NodeName: "sim-0", NodeIP: "127.0.0.1", Socket: c.dir + "/agent.sock",
		PluginDir: c.dir + "/plugins", RuntimeBin: filepath.Join(repository(t), "build/runtime/bin"),
	}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	t.Cleanup(func() {
		if err := Cleanup(context.Background(), cfg, logger); err != nil {
			t.Error(err)
		}
		for _, left := range []string{filepath.Join(run, "pods"), filepath.Join(c.dir, "nodes/sim-0/pods")} {
			if entries, err := os.ReadDir(left); err == nil && len(entries) > 0 {
				t.Errorf("left in %s: %v", left, entries)
			}
		}
		if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), c.dir) || strings.Contains(string(mounts), run) {
			t.Errorf("mounts are left: %v\n%s", err, mounts)
		}
		if _, err := netlink.LinkByName("trireme0"); err == nil {
			t.Error("the bridge is left")
		}
		// Once more: it may be repeated.
		if err := Cleanup(context.Background(), cfg, logger); err != nil {
			t.Error(err)
		}
	})
	c.startWith(cfg)
	t.Cleanup(func() { c.stop() })
	c.waitNode(func(n *corev1.Node) bool { return n.GetStatus().GetNodeInfo() != nil })
	c.patchNode(`{"spec":{"podCIDR":"10.77.0.0/24","podCIDRs":["10.77.0.0/24"]}}`)
	c.waitNode(func(n *corev1.Node) bool { return nodeReady(n) == "True" })
	s := c.service()
	image := c.loadImage(s)

	if _, err := client.For[*corev1.ConfigMap](c.conn).Create(t.Context(), &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"a": "1"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.For[*corev1.Secret](c.conn).Create(t.Context(), &corev1.Secret{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "keys"}, Data: map[string][]byte{"k": []byte("hidden")},
	}); err != nil {
		t.Fatal(err)
	}
	p := pod("web", "sh", "-c", `echo "$A $POD_IP $(cat /conf/a) $(cat /secret/k)"; echo page > /tmp/scratch/index.html; exec httpd -f -p 80 -h /tmp/scratch`)
	p.Spec.Containers[0].Image = image
	p.Spec.Containers[0].ImagePullPolicy = proto.String("IfNotPresent")
	p.Spec.Containers[0].Env = []*corev1.EnvVar{
		{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Name: "settings", Key: "a"}}},
		{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
	}
	p.Spec.Containers[0].VolumeMounts = []*corev1.VolumeMount{
		{Name: "conf", MountPath: "/conf"}, {Name: "secret", MountPath: "/secret"}, {Name: "scratch", MountPath: "/tmp/scratch", SubPath: proto.String("inner")},
	}
	p.Spec.Volumes = []*corev1.Volume{
		{Name: "conf", ConfigMap: &corev1.ConfigMapVolumeSource{Name: "settings"}},
		{Name: "secret", Secret: &corev1.SecretVolumeSource{SecretName: "keys"}},
		{Name: "scratch", EmptyDir: &corev1.EmptyDirVolumeSource{Medium: proto.String("Memory")}},
	}
	created := c.create(p)
	got := c.waitPod("web", running)
	ip := got.GetStatus().GetPodIp()
	if line := firstLine(t, s, created); line != "1 "+ip+" 1 hidden\n" {
		t.Errorf("log %q", line)
	}
	if out, _, exit, err := execCommand(t, s, created, "cat", "/tmp/scratch/index.html"); err != nil || out != "page\n" || exit.GetCode() != 0 {
		t.Errorf("exec: %q %v %v", out, exit, err)
	}
	if out := c.fetch(s, created, 80); !strings.Contains(out, "page") {
		t.Errorf("port forward: %q", out)
	}

	c.restartAgent(cfg, got)
	c.startTimes(image)

	if _, err := c.pods.Delete(t.Context(), "default", "web", nil); err != nil {
		t.Fatal(err)
	}
	c.waitGone("web")
	left := pod("left", "sleep", "1000")
	left.Spec.Containers[0].Image, left.Spec.Containers[0].ImagePullPolicy = image, proto.String("Never")
	c.create(left)
	c.waitPod("left", running)
	c.stop()
}

func execCommand(t *testing.T, s nodev1.NodeServiceClient, p *corev1.Pod, command ...string) (string, string, *corev1.ExitStatus, error) {
	return exec(t, s, p, &corev1.ExecStart{Command: command, Stdout: true}, "")
}

// firstLine follows the log until there is a line.
func firstLine(t *testing.T, s nodev1.NodeServiceClient, p *corev1.Pod) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := s.Logs(ctx, &nodev1.NodeLogsRequest{PodUid: p.GetMetadata().GetUid(), Request: &corev1.LogsRequest{Follow: true}})
	if err != nil {
		t.Fatal(err)
	}
	line := ""
	for !strings.Contains(line, "\n") {
		piece, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		line += string(piece.GetData())
	}
	return line
}

func (c *cluster) loadImage(s nodev1.NodeServiceClient) string {
	c.Helper()
	f, err := os.Open(filepath.Join(repository(c.T), "build/images/busybox.tar"))
	if err != nil {
		c.Fatal(err)
	}
	defer f.Close()
	stream, err := s.LoadImage(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	buffer := make([]byte, 256<<10)
	for {
		n, err := f.Read(buffer)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.Fatal(err)
		}
		if err := stream.Send(&nodev1.LoadImageRequest{NodeName: "sim-0", Chunk: buffer[:n]}); err != nil {
			break
		}
	}
	loaded, err := stream.CloseAndRecv()
	if err != nil || len(loaded.GetImages()) == 0 {
		c.Fatalf("load image: %v %v", loaded, err)
	}
	return loaded.GetImages()[0]
}

// fetch makes an HTTP request through a forwarded port.
func (c *cluster) fetch(s nodev1.NodeServiceClient, p *corev1.Pod, port int32) string {
	c.Helper()
	stream, err := s.PortForward(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	send := func(r *corev1.PortForwardRequest) {
		if err := stream.Send(&nodev1.NodePortForwardRequest{PodUid: p.GetMetadata().GetUid(), Request: r}); err != nil {
			c.Fatal(err)
		}
	}
	send(&corev1.PortForwardRequest{Message: &corev1.PortForwardRequest_Start{Start: &corev1.PortForwardStart{Port: port}}})
	send(&corev1.PortForwardRequest{Message: &corev1.PortForwardRequest_Data{Data: []byte("GET / HTTP/1.0\r\n\r\n")}})
	var out strings.Builder
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			c.Errorf("port forward: %v", apierr.FromStatus(err))
			return out.String()
		}
		out.Write(r.GetData())
	}
}

// restartAgent stops the agent and starts another: the pod's container must not notice.
func (c *cluster) restartAgent(cfg Config, before *corev1.Pod) {
	c.Helper()
	c.stop()
	c.startWith(cfg)
	late := pod("late", "true")
	late.Spec.RestartPolicy = proto.String("Never")
	late.Spec.Containers[0].Image, late.Spec.Containers[0].ImagePullPolicy = mainStatus(before).GetImage(), proto.String("Never")
	c.create(late)
	c.waitPod("late", func(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Succeeded" })
	after := c.waitPod(before.GetMetadata().GetName(), running)
	if mainStatus(after).GetContainerId() != mainStatus(before).GetContainerId() || mainStatus(after).GetRestartCount() != 0 {
		c.Errorf("before %v\nafter %v", mainStatus(before), mainStatus(after))
	}
}

// startTimes measures from creation to Running, with the image present, and logs the median.
func (c *cluster) startTimes(image string) {
	c.Helper()
	var times []time.Duration
	for range 10 {
		p := pod("timed", "sleep", "1000")
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = image, proto.String("IfNotPresent")
		p.Spec.TerminationGracePeriodSeconds = proto.Int64(0)
		begin := time.Now()
		c.create(p)
		c.waitPod("timed", running)
		times = append(times, time.Since(begin))
		if _, err := c.pods.Delete(c.Context(), "default", "timed", nil); err != nil {
			c.Fatal(err)
		}
		c.waitGone("timed")
	}
	slices.Sort(times)
	c.Logf("creation to Running: median %s, %v", times[len(times)/2], times)
}
