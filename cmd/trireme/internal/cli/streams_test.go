package cli_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/cmd/trireme/internal/cli"
	"trireme.dev/cmd/trireme/internal/contexts"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/apiserver/apitest"
)

// hostNode is a node agent whose containers are this machine: it runs commands and connects to ports for real.
type hostNode struct {
	nodev1.UnimplementedNodeServiceServer

	loaded chan []byte
	tar    []byte // what tar says instead of the real one; nil for that
}

func (n *hostNode) Logs(r *nodev1.NodeLogsRequest, stream nodev1.NodeService_LogsServer) error {
	return stream.Send(&corev1.LogsResponse{Data: []byte(r.GetRequest().String())})
}

func (n *hostNode) Exec(stream nodev1.NodeService_ExecServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetRequest().GetStart()
	cmd := exec.CommandContext(stream.Context(), start.GetCommand()[0], start.GetCommand()[1:]...)
	send := func(wrap func([]byte) *corev1.ExecResponse) io.Writer {
		return writer(func(b []byte) error { return stream.Send(wrap(b)) })
	}
	out, errOut := &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, errOut
	if start.GetStdin() {
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			defer in.Close()
			for {
				request, err := stream.Recv()
				if err != nil || request.GetRequest().GetCloseStdin() {
					return
				}
				if _, err := in.Write(request.GetRequest().GetStdin()); err != nil {
					return
				}
			}
		}()
	}
	if start.GetCommand()[0] == "tar" && n.tar != nil {
		return errors.Join(
			stream.Send(&corev1.ExecResponse{Message: &corev1.ExecResponse_Stdout{Stdout: n.tar}}),
			stream.Send(&corev1.ExecResponse{Message: &corev1.ExecResponse_Exit{Exit: &corev1.ExitStatus{}}}))
	}
	exit := &corev1.ExitStatus{}
	err = cmd.Run()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		exit.Code = int32(failed.ExitCode())
	case err != nil:
		exit.Code, exit.Message = 127, err.Error()
	}
	stdout := send(func(b []byte) *corev1.ExecResponse {
		return &corev1.ExecResponse{Message: &corev1.ExecResponse_Stdout{Stdout: b}}
	})
	stderr := send(func(b []byte) *corev1.ExecResponse {
		return &corev1.ExecResponse{Message: &corev1.ExecResponse_Stderr{Stderr: b}}
	})
	if _, err := io.Copy(stdout, out); err != nil {
		return err
	}
	if _, err := io.Copy(stderr, errOut); err != nil {
		return err
	}
	return stream.Send(&corev1.ExecResponse{Message: &corev1.ExecResponse_Exit{Exit: exit}})
}

type writer func([]byte) error

func (w writer) Write(b []byte) (int, error) { return len(b), w(b) }

func (n *hostNode) PortForward(stream nodev1.NodeService_PortForwardServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(first.GetRequest().GetStart().GetPort()))))
	if err != nil {
		return apierr.ToStatus(apierr.Unavailable("nothing listens"))
	}
	defer conn.Close()
	if err := stream.Send(&corev1.PortForwardResponse{Message: &corev1.PortForwardResponse_Connected{Connected: true}}); err != nil {
		return err
	}
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil || request.GetRequest().GetClose() {
				_ = conn.(*net.TCPConn).CloseWrite()
				return
			}
			if _, err := conn.Write(request.GetRequest().GetData()); err != nil {
				return
			}
		}
	}()
	_, err = io.Copy(writer(func(b []byte) error {
		return stream.Send(&corev1.PortForwardResponse{Message: &corev1.PortForwardResponse_Data{Data: b}})
	}), conn)
	return err
}

func (n *hostNode) LoadImage(stream nodev1.NodeService_LoadImageServer) error {
	var archive []byte
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			n.loaded <- archive
			return stream.SendAndClose(&nodev1.LoadImageResponse{Images: []string{"example/a:1"}})
		}
		if err != nil {
			return err
		}
		archive = append(archive, request.GetChunk()...)
	}
}

func (n *hostNode) ListImages(context.Context, *nodev1.ListImagesRequest) (*nodev1.ListImagesResponse, error) {
	return &nodev1.ListImagesResponse{Images: []*nodev1.NodeImage{{Names: []string{"example/a:1"}, SizeBytes: 3 << 20}}}, nil
}

// withPod is a gateway with pod p on a hostNode.
func withPod(t *testing.T) (*program, *hostNode) {
	t.Helper()
	s := apitest.New(t)
	node := &hostNode{loaded: make(chan []byte, 1)}
	server := grpc.NewServer()
	nodev1.RegisterNodeServiceServer(server, node)
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	s.SetNodeDialer(func(string, string) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	})
	nodes := client.For[*corev1.Node](s.Conn())
	n, err := nodes.Create(t.Context(), &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Status = &corev1.NodeStatus{
		Addresses:       []*corev1.NodeAddress{{Type: "InternalIP", Address: "127.0.0.1"}},
		DaemonEndpoints: &corev1.NodeDaemonEndpoints{KubeletEndpoint: &corev1.DaemonEndpoint{Port: 7444}},
	}
	if _, err := nodes.UpdateStatus(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if _, err := client.For[*corev1.Pod](s.Conn()).Create(t.Context(), &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: "p", Namespace: "default"},
		Spec: &corev1.PodSpec{NodeName: proto.String("n1"), Containers: []*corev1.Container{
			{Name: "main", Image: "example/a:1"}, {Name: "side", Image: "example/a:1"},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	return newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() }), node
}

func (p *program) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, errOut, code := p.run(t.Context(), stdin, args...)
	if code != 0 {
		t.Fatalf("trireme %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errOut)
	}
	return out
}

func TestExec(t *testing.T) {
	p, _ := withPod(t)
	if out := p.must(t, "", "exec", "p", "--", "echo", "a", "-n", "b"); out != "a -n b\n" {
		t.Errorf("output %q", out)
	}
	// Standard input arrives whole, and so does its end.
	long := strings.Repeat("0123456789", 20000)
	if out := p.must(t, long, "exec", "-i", "p", "-c", "side", "--", "cat"); out != long {
		t.Errorf("%d bytes came back of %d", len(out), len(long))
	}
	if out := p.must(t, "lost", "exec", "p", "--", "cat"); out != "" {
		t.Errorf("input without -i: %q", out)
	}
	out, errOut, code := p.run(t.Context(), "", "exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	if out != "out\n" || !strings.Contains(errOut, "err\n") || code != 7 {
		t.Errorf("out %q, err %q, code %d", out, errOut, code)
	}
	_, errOut, code = p.run(t.Context(), "", "exec", "p", "-c", "nosuch", "--", "true")
	if code != 1 || !strings.Contains(errOut, "main, side") {
		t.Errorf("wrong container: code %d, %q", code, errOut)
	}
}

func TestLogs(t *testing.T) {
	p, _ := withPod(t)
	out, errOut, _ := p.run(t.Context(), "", "logs", "pod/p", "--tail", "3", "--since", "90s", "-f", "--timestamps", "-p")
	for _, want := range []string{`container:"main"`, "tail_lines:3", "since_seconds:90", "follow:true", "timestamps:true", "previous:true"} {
		if !strings.Contains(strings.ReplaceAll(out, "  ", " "), want) {
			t.Errorf("request %q lacks %s", out, want)
		}
	}
	if !strings.Contains(errOut, `Defaulted container "main" out of: main, side`) {
		t.Errorf("stderr %q", errOut)
	}
}

func TestCopy(t *testing.T) {
	p, _ := withPod(t)
	// The container is this machine, so its paths are ours.
	here, there := t.TempDir(), t.TempDir()
	files := map[string]string{"a.txt": "a", "sub/b.txt": "b", "sub/c.sh": "#!/bin/sh\n"}
	for name, text := range files {
		file := filepath.Join(here, "data", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(here, "data", "sub", "c.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	same := func(folder string) {
		t.Helper()
		for name, text := range files {
			got, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil || string(got) != text {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		if info, err := os.Stat(filepath.Join(folder, "sub", "c.sh")); err != nil || info.Mode().Perm()&0o100 == 0 {
			t.Errorf("c.sh is not executable: %v %v", info, err)
		}
	}
	p.must(t, "", "cp", filepath.Join(here, "data"), "p:"+filepath.Join(there, "new"))
	same(filepath.Join(there, "new"))
	p.must(t, "", "cp", filepath.Join(here, "data"), "default/p:"+there) // there is a folder: into it
	same(filepath.Join(there, "data"))
	p.must(t, "", "cp", "p:"+filepath.Join(there, "data"), filepath.Join(here, "back"))
	same(filepath.Join(here, "back"))
	p.must(t, "", "cp", "pod/p:"+filepath.Join(there, "data", "a.txt"), here)
	if got, err := os.ReadFile(filepath.Join(here, "a.txt")); err != nil || string(got) != "a" {
		t.Errorf("a.txt: %q %v", got, err)
	}
	for _, args := range [][]string{
		{"cp", "p:" + filepath.Join(there, "nosuch"), here},
		{"cp", filepath.Join(here, "nosuch"), "p:" + there},
		{"cp", filepath.Join(here, "data"), "p:/nosuch/x"},
		{"cp", "a", "b"},
		{"cp", "p:/a", "p:/b"},
	} {
		if _, errOut, code := p.run(t.Context(), "", args...); code == 0 || !strings.HasPrefix(errOut, "error: ") && !strings.HasPrefix(errOut, "Defaulted") {
			t.Errorf("%v: code %d, %q", args, code, errOut)
		}
	}
}

// A container must not be able to write where it was not asked to, whatever its tar says.
func TestCopyStaysInside(t *testing.T) {
	p, node := withPod(t)
	outside := t.TempDir()
	for name, entries := range map[string][]tar.Header{
		"another name":      {{Name: "other"}},
		"a longer name":     {{Name: "data2"}},
		"upwards":           {{Name: "data/../../escaped"}},
		"absolute":          {{Name: filepath.Join(outside, "escaped")}},
		"through a link":    {{Name: "data/link", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "data/link/escaped"}},
		"through our link":  {{Name: "data/ours/escaped"}},
		"by a hard link":    {{Name: "data/hard", Typeflag: tar.TypeLink, Linkname: filepath.Join(outside, "there")}, {Name: "data/hard"}},
		"as the whole tree": {{Name: ".."}, {Name: "../escaped"}},
	} {
		t.Run(name, func(t *testing.T) {
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			for _, h := range entries {
				if h.Mode = 0o644; h.Typeflag == 0 {
					h.Size = 3
				}
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				if h.Size > 0 {
					if _, err := w.Write([]byte("bad")); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			node.tar = archive.Bytes()
			parent := t.TempDir()
			if err := errors.Join(os.WriteFile(filepath.Join(outside, "there"), []byte("good"), 0o600), os.Mkdir(filepath.Join(parent, "data"), 0o755),
				os.Symlink(outside, filepath.Join(parent, "data", "ours"))); err != nil {
				t.Fatal(err)
			}
			p.run(t.Context(), "", "cp", "p:/data", parent)
			if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
				t.Errorf("written outside: %v %v", entries, err)
			}
			if got, err := os.ReadFile(filepath.Join(outside, "there")); err != nil || string(got) != "good" {
				t.Errorf("a file outside was changed: %q %v", got, err)
			}
			if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1 {
				t.Errorf("written beside the target: %v %v", entries, err)
			}
		})
	}
}

func TestPortForward(t *testing.T) {
	p, _ := withPod(t)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				text, _ := io.ReadAll(conn)
				_, _ = conn.Write(bytes.ToUpper(text))
			}()
		}
	}()
	_, port, err := net.SplitHostPort(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reader, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := p.stream(ctx, out, "port-forward", "p", ":"+port)
		ended <- code
	}()
	line := make([]byte, 256)
	n, err := reader.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(string(line[:n]), "Forwarding from "), " ")
	for range 2 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("%v after %q", err, line[:n])
		}
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != "HELLO" {
			t.Errorf("got %q, %v", got, err)
		}
		_ = conn.Close()
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestImage(t *testing.T) {
	p, node := withPod(t)
	archive := bytes.Repeat([]byte("layer"), 500_000)
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(file, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := p.must(t, "", "image", "load", file); out != "n1: loaded example/a:1\n" {
		t.Errorf("output %q", out)
	}
	if got := <-node.loaded; !bytes.Equal(got, archive) {
		t.Errorf("%d bytes arrived of %d", len(got), len(archive))
	}
	if out := p.must(t, "", "image", "ls"); !strings.Contains(out, "n1     example/a:1   3 MiB\n") {
		t.Errorf("output %q", out)
	}
	if _, errOut, code := p.run(t.Context(), "", "image", "load", file, "--node", "nosuch"); code != 1 || !strings.Contains(errOut, `"nosuch" not found`) {
		t.Errorf("code %d, %q", code, errOut)
	}
}

func TestGatewayDown(t *testing.T) {
	p := newProgram(t, cli.Dial)
	socket := filepath.Join(t.TempDir(), "s.sock")
	_, errOut, code := p.run(t.Context(), "", "get", "pods", "--server", "unix://"+socket)
	if want := "error: cannot reach the gateway at unix://" + socket + ": is the cluster up? (trireme up)\n"; code != 1 || errOut != want {
		t.Errorf("code %d, %q, want %q", code, errOut, want)
	}
	_, errOut, code = p.run(t.Context(), "", "apply", "-f", "-", "--server", "unix://"+socket)
	if code != 1 || strings.Contains(errOut, "created") {
		t.Errorf("code %d, %q", code, errOut)
	}
	t.Setenv(contexts.EnvVar, filepath.Join(t.TempDir(), "none.yaml"))
	_, errOut, code = p.run(t.Context(), "", "get", "pods")
	if code != 1 || !strings.Contains(errOut, "no cluster is configured") || !strings.Contains(errOut, "trireme up") {
		t.Errorf("code %d, %q", code, errOut)
	}
}
