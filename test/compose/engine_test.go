//go:build compose && linux

package compose

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const pollEvery = 200 * time.Millisecond

// engine is a docker daemon in network, process and mount namespaces of its own.
type engine struct {
	root  string // of the repository
	dir   string // keeps all of it
	pid   int    // its first process, as this one sees it
	group string // of all its containers
}

// startEngine starts a daemon and ends it with the test, and fails where something of it is left.
func startEngine(t *testing.T) *engine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a docker daemon needs root")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	// Unix sockets have short paths: not the long name of t.TempDir.
	dir, err := os.MkdirTemp("", "trireme-compose-")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{root: root, dir: dir, group: filepath.Base(dir)}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("the daemon's folder cannot be removed: %v", err)
		}
	})
	plugins := filepath.Join(dir, "config", "cli-plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "build", "tools", "docker-compose"), filepath.Join(plugins, "docker-compose")); err != nil {
		t.Fatal(err)
	}
	// What is configured on this machine is not for this daemon.
	if err := os.WriteFile(filepath.Join(dir, "daemon.json"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `mount -t proc proc /proc && ip link set lo up && exec docker-init -s -- dockerd "$@"`
	daemon := exec.Command("sh", "-c", script, "sh", "--config-file="+filepath.Join(dir, "daemon.json"),
		"--data-root="+filepath.Join(dir, "data"), "--exec-root="+filepath.Join(dir, "exec"), "--pidfile="+filepath.Join(dir, "pid"),
		"--host="+e.host(), "--bridge=none", "--exec-opt=native.cgroupdriver=cgroupfs", "--cgroup-parent=/"+e.group)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		Unshareflags: unix.CLONE_NEWNS,
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	e.pid = daemon.Process.Pid
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = daemon.Wait() // how it ended is in its log
	}()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("the daemon did not end in time")
			_ = daemon.Process.Kill()
			<-ended
		}
		if left, err := removeCgroups(e.group); err != nil {
			t.Errorf("cgroups left of containers: %v %v", left, err)
		}
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(pollEvery) {
		if err := e.command("docker", "version").Run(); err == nil {
			return e
		}
		select {
		case <-ended:
			t.Fatalf("the daemon ended\n%s", e.log())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the daemon does not answer\n%s", e.log())
		}
	}
}

func (e *engine) log() string {
	text, err := os.ReadFile(filepath.Join(e.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (e *engine) host() string { return "unix://" + filepath.Join(e.dir, "docker.sock") }

// command is one that sees the daemon's network, in which its ports are published.
func (e *engine) command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", e.pid), "--"}, args...)...)
	path := []string{filepath.Join(e.root, "bin"), filepath.Join(e.root, "build", "tools"), os.Getenv("PATH")}
	cmd.Env = append(os.Environ(),
		"DOCKER_HOST="+e.host(), "DOCKER_CONFIG="+filepath.Join(e.dir, "config"), "DOCKER_CONTEXT=", "TRIREME_CONFIG=",
		"PATH="+strings.Join(path, string(os.PathListSeparator)))
	return cmd
}

// run runs a command and returns what it prints, on both streams.
func (e *engine) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := e.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// inside does something on a thread that is in the daemon's network.
func (e *engine) inside(do func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", e.pid))
		if err != nil {
			done <- err
			return
		}
		defer func() { _ = ns.Close() }()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// dial connects as a process in the daemon's network does: http.Transport.DialContext for Jaeger's API.
func (e *engine) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = e.inside(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// load loads all images that make images-services writes.
func (e *engine) load(t *testing.T) {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(e.root, "build", "images", "compose", "*.tar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(archives) < 8 {
		t.Fatalf("images are missing: run `make images-services` first (found %q)", archives)
	}
	for _, a := range archives {
		e.run(t, "docker", "load", "--quiet", "--input", a)
	}
}

// listening are the addresses of all TCP listeners in the daemon's network.
func (e *engine) listening(t *testing.T) []string {
	t.Helper()
	out := e.run(t, "ss", "-H", "-l", "-t", "-n")
	var all []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 3 {
			all = append(all, f[3])
		}
	}
	return all
}

// removeCgroups removes the cgroups of the daemon's containers, which must be empty. Containers that are gone have
// taken theirs along, so what is there beside the parents is reported.
func removeCgroups(group string) (left []string, err error) {
	var tops []string
	for _, pattern := range []string{"/sys/fs/cgroup/" + group, "/sys/fs/cgroup/*/" + group} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		tops = append(tops, found...)
	}
	for _, top := range tops {
		entries, readErr := os.ReadDir(top)
		err = errors.Join(err, readErr)
		for _, entry := range entries {
			if entry.IsDir() {
				left = append(left, filepath.Join(top, entry.Name()))
			}
		}
		err = errors.Join(err, unix.Rmdir(top))
	}
	return left, err
}
