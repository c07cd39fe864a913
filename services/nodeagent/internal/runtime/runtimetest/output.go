package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"trireme.dev/kit/ociarchive"
	"trireme.dev/services/nodeagent/internal/logs"
	"trireme.dev/services/nodeagent/internal/runtime"
)

func testEvents(t *testing.T, node *Node) {
	ctx, cancel := context.WithCancel(Context(t))
	events, err := node.Runtime.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := node.NewPod(t, nil)
	// Each step takes a hint that comes after it; hints of earlier steps may come in between, so the state decides.
	await := func(what string, is func(*runtime.Pod) bool) {
		t.Helper()
		for event := range events {
			if event.PodUID != p.UID {
				t.Errorf("event of pod %s, which changed nothing", event.PodUID)
				continue
			}
			pod, err := p.Runtime.Pod(Context(t), p.UID)
			if errors.Is(err, runtime.ErrNotFound) {
				pod = nil
			} else if err != nil {
				t.Fatal(err)
			}
			if is(pod) {
				return
			}
		}
		t.Fatalf("no event when the pod was %s", what)
	}
	id := p.Shell("main", "sleep 0.3; exit 1")
	await("started", func(pod *runtime.Pod) bool { return find(pod, id).State == runtime.StateRunning })
	await("exited", func(pod *runtime.Pod) bool { return find(pod, id).State == runtime.StateExited })
	if err := p.Runtime.RemoveSandbox(Context(t), p.UID); err != nil {
		t.Fatal(err)
	}
	await("removed", func(pod *runtime.Pod) bool { return pod == nil })
	cancel()
	for event := range events {
		if event.PodUID != p.UID {
			t.Errorf("event of pod %s, which changed nothing", event.PodUID)
		}
	}
}

// waitForLog follows a log until it has a line of output.
func (p *Pod) waitForLog(path, line string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), Timeout)
	defer cancel()
	if err := WaitForLine(ctx, path, line); err != nil {
		got, _ := os.ReadFile(path)
		p.t.Fatalf("no line %q in the log: %v\n%s", line, err, got)
	}
}

// WaitForLine follows a log until it has a line of output.
func WaitForLine(ctx context.Context, path, line string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sink := &lineSink{want: line, found: cancel}
	err := logs.Read(ctx, path, logs.Options{Follow: true}, sink)
	if sink.seen {
		return nil
	}
	return err
}

type lineSink struct {
	want  string
	found func()
	rest  []byte // of a line whose end has not come
	seen  bool
}

func (s *lineSink) Write(b []byte) (int, error) {
	s.rest = append(s.rest, b...)
	for {
		line, rest, whole := bytes.Cut(s.rest, []byte{'\n'})
		if !whole {
			return len(b), nil
		}
		if string(line) == s.want && !s.seen {
			s.seen = true
			s.found()
		}
		s.rest = rest
	}
}

var criLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) [FP] `)

func testLogs(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	spec := p.Spec("main", "sh", "-c", "echo first; echo second; sleep 0.1; echo -n last; exit 0")
	p.WaitExit(p.Start(spec))
	// Exited means that all output is in the file.
	data, err := os.ReadFile(spec.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if !criLine.MatchString(line) || !strings.HasSuffix(line, "\n") {
			t.Errorf("line %q is not in the CRI format", line)
		}
	}
	var plain bytes.Buffer
	if err := logs.Read(Context(t), spec.LogPath, logs.Options{}, &plain); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(plain.String(), "first\nsecond\nlast\n") {
		t.Errorf("log %q, want it to end with the container's three lines", plain.String())
	}
}

func testExec(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	spec := p.Spec("main", "sh", "-c", waits)
	spec.Env = []string{"COLOUR=teal"}
	spec.Devices.Env = []string{"NVIDIA_VISIBLE_DEVICES=0,1"}
	id := p.Start(spec)
	exec := func(stdin string, command ...string) (string, string, int) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		e := runtime.ExecSpec{Command: command, Stdout: &stdout, Stderr: &stderr}
		if stdin != "" {
			e.Stdin = strings.NewReader(stdin)
		}
		code, err := p.Runtime.Exec(Context(t), id, e)
		if err != nil {
			t.Fatalf("exec %q: %v", command, err)
		}
		return stdout.String(), stderr.String(), code
	}
	if out, _, code := exec("", "echo", "hello", "there"); out != "hello there\n" || code != 0 {
		t.Errorf("echo: %q %d", out, code)
	}
	if _, _, code := exec("", "sh", "-c", "exit 12"); code != 12 {
		t.Errorf("exit 12: %d", code)
	}
	if out, _, _ := exec("", "env"); !strings.Contains(out, "COLOUR=teal\n") || !strings.Contains(out, "NVIDIA_VISIBLE_DEVICES=0,1\n") {
		t.Errorf("env: %q", out)
	}
	if out, _, _ := exec("", "hostname"); !strings.HasPrefix(out, "host-") {
		t.Errorf("hostname: %q", out)
	}
	if out, _, code := exec("one\ntwo\n", "cat"); out != "one\ntwo\n" || code != 0 {
		t.Errorf("cat: %q %d", out, code)
	}
	// Nobody listens: the output goes nowhere and the command ends all the same.
	if code, err := p.Runtime.Exec(Context(t), id, runtime.ExecSpec{Command: []string{"echo", "hello"}}); code != 0 || err != nil {
		t.Errorf("exec without outputs: %d %v", code, err)
	}
	// A command that isn't there: an error that names it, or the shell's code for it.
	var stderr bytes.Buffer
	code, err := p.Runtime.Exec(Context(t), id, runtime.ExecSpec{Command: []string{"/absent/program"}, Stderr: &stderr})
	if said := stderr.String(); err != nil {
		said = err.Error()
		if !strings.Contains(said, "/absent/program") {
			t.Errorf("exec of an absent program: %q does not name it", said)
		}
	} else if code != 127 || !strings.Contains(said, "/absent/program") {
		t.Errorf("exec of an absent program: code %d, %q; want 127 and its name", code, said)
	}
	if c := p.Container(id); c.State != runtime.StateRunning {
		t.Errorf("container after exec %+v", *c)
	}
	p.Stop(id, 0)
	if _, err := p.Runtime.Exec(Context(t), id, runtime.ExecSpec{Command: []string{"true"}}); err == nil {
		t.Error("exec works in a container that has exited")
	}
	if _, err := p.Runtime.Exec(Context(t), "unknown", runtime.ExecSpec{Command: []string{"true"}}); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("exec in an unknown container: %v, want %v", err, runtime.ErrNotFound)
	}
}

func testTerminationMessage(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	spec := p.Spec("main", "sh", "-c", `echo -n "it was the disk" > /tmp/why; exit 1`)
	spec.TerminationMessagePath = "/tmp/why"
	if c := p.WaitExit(p.Start(spec)); c.TerminationMessage != "it was the disk" || c.ExitCode != 1 {
		t.Errorf("container %+v, want its message", *c)
	}
	if c := p.WaitExit(p.Shell("quiet", "exit 0")); c.TerminationMessage != "" {
		t.Errorf("container %+v, want no message", *c)
	}
	long := strings.Repeat("x", 5000)
	if c := p.WaitExit(p.Shell("long", "echo -n "+long+" > /dev/termination-log; exit 0")); c.TerminationMessage != long[:4096] {
		t.Errorf("message of %d bytes, want the first 4096", len(c.TerminationMessage))
	}
}

func testImages(t *testing.T, node *Node) {
	ctx, images := Context(t), node.Runtime.Images()
	present, err := images.Get(ctx, node.Image)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(present.ID, "sha256:") || len(present.Names) == 0 {
		t.Errorf("image %+v, want a digest and names", *present)
	}
	if _, err := images.Get(ctx, node.Absent); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("get an absent image: %v, want %v", err, runtime.ErrNotFound)
	}
	if _, err := images.Get(ctx, "Not A Reference"); err == nil || errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("get a malformed reference: %v, want an error that is not %v", err, runtime.ErrNotFound)
	}
	if _, err := images.Pull(ctx, node.Absent); err == nil {
		t.Error("an absent image can be pulled")
	}
	var archive bytes.Buffer
	if err := ociarchive.Write(&archive, ociarchive.Spec{
		Name:  "docker.io/library/suite:1",
		Files: map[string]ociarchive.File{"/hello": {Data: []byte("hello")}},
		Cmd:   []string{"/hello"},
	}); err != nil {
		t.Fatal(err)
	}
	names, err := images.Import(ctx, &archive)
	if err != nil || len(names) != 1 || names[0] != "docker.io/library/suite:1" {
		t.Fatalf("imported %q, %v", names, err)
	}
	for _, ref := range []string{"docker.io/library/suite:1", "suite:1"} {
		if _, err := images.Get(ctx, ref); err != nil {
			t.Errorf("get the imported image as %s: %v", ref, err)
		}
	}
	list, err := images.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	listed := false
	for _, image := range list {
		for _, name := range image.Names {
			listed = listed || name == "docker.io/library/suite:1"
		}
	}
	if !listed {
		t.Error("the imported image is not listed")
	}
	if _, err := images.Import(ctx, strings.NewReader("no archive")); err == nil {
		t.Error("something that is no archive can be imported")
	}
}
