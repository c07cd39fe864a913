//go:build linux

package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"
)

// SupervisorConfig says how to run a containerd of our own.
type SupervisorConfig struct {
	// Binary is containerd's path; its shim lies beside it or in PATH. Required.
	Binary string
	// RootDir keeps images and metadata, StateDir (on a tmpfs, normally) what ends with the machine. Required.
	RootDir, StateDir string
	// Socket that it serves; StateDir/containerd.sock where empty. At most 100 bytes long.
	Socket string
	// LogFile receives its output; RootDir/containerd.log where empty.
	LogFile string
}

// Supervisor starts a containerd and starts it again when it dies. The containerd lives in a session of its own and
// outlives the supervisor, as containers outlive the containerd: a supervisor that finds one serving its socket adopts
// it.
type Supervisor struct {
	cfg    SupervisorConfig
	logger *slog.Logger
}

// NewSupervisor checks the configuration and fills its defaults.
func NewSupervisor(cfg SupervisorConfig, logger *slog.Logger) (*Supervisor, error) {
	if cfg.Binary == "" || cfg.RootDir == "" || cfg.StateDir == "" {
		return nil, errors.New("containerd supervisor: binary, root and state folders are required")
	}
	if cfg.Socket == "" {
		cfg.Socket = filepath.Join(cfg.StateDir, "containerd.sock")
	}
	if cfg.LogFile == "" {
		cfg.LogFile = filepath.Join(cfg.RootDir, "containerd.log")
	}
	// The kernel takes 107 bytes, and containerd adds ".ttrpc".
	if len(cfg.Socket) > 100 {
		return nil, fmt.Errorf("containerd supervisor: socket path %s is longer than 100 bytes", cfg.Socket)
	}
	return &Supervisor{cfg: cfg, logger: logger}, nil
}

// Socket is where the containerd serves.
func (s *Supervisor) Socket() string { return s.cfg.Socket }

// ShimSocketDir is where its shims serve.
func (s *Supervisor) ShimSocketDir() string { return filepath.Join(s.cfg.StateDir, "s") }

// Start adopts the containerd that serves the socket, or starts one, and returns once it serves.
func (s *Supervisor) Start(ctx context.Context) error {
	if pid, err := s.pid(); err == nil {
		if err := s.adopt(ctx, pid); !errors.Is(err, errExited) {
			return err
		}
	}
	exited, err := s.launch()
	if err != nil {
		return err
	}
	return s.await(ctx, exited)
}

// errExited says that a containerd ended before it answered.
var errExited = errors.New("it exited")

// adopt waits for the answer of a containerd that serves the socket. One that was just killed seems to serve a moment
// longer; its end is seen here.
func (s *Supervisor) adopt(ctx context.Context, pid int) error {
	process, err := openProcess(pid)
	if err != nil {
		return fmt.Errorf("adopt containerd: %w: %w", errExited, err)
	}
	defer process.close()
	ctx, cancel := context.WithCancel(ctx)
	exited := make(chan error, 1)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		if process.wait(ctx) == nil {
			exited <- errExited
		}
	}()
	defer func() {
		cancel()
		<-waited
	}()
	if err := s.await(ctx, exited); err != nil {
		return err
	}
	s.logger.Info("containerd adopted", "pid", pid, "socket", s.cfg.Socket)
	return nil
}

// Run keeps a containerd serving until ctx ends, and leaves it running then.
func (s *Supervisor) Run(ctx context.Context) error {
	const least, most = 100 * time.Millisecond, 5 * time.Second
	delay := least
	for {
		began := time.Now()
		if err := s.Start(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			s.logger.Error("containerd does not start", "error", err)
		} else if err := s.watch(ctx); ctx.Err() != nil {
			return nil
		} else {
			s.logger.Warn("containerd died and is started again", "error", err)
		}
		// One that lived for a while has earned a quick start.
		if time.Since(began) > time.Minute {
			delay = least
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		delay = min(2*delay, most)
	}
}

// Stop ends the containerd that serves the socket, and only it: its shims and containers live on.
func (s *Supervisor) Stop(ctx context.Context) error {
	pid, err := s.pid()
	if err != nil {
		return nil
	}
	process, err := openProcess(pid)
	if err != nil {
		return fmt.Errorf("stop containerd: %w", err)
	}
	defer process.close()
	if err := process.signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("stop containerd: %w", err)
	}
	patient, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if process.wait(patient) != nil {
		if err := process.signal(unix.SIGKILL); err != nil {
			return fmt.Errorf("kill containerd: %w", err)
		}
		if err := process.wait(ctx); err != nil {
			return fmt.Errorf("stop containerd: %w", err)
		}
	}
	for _, socket := range []string{s.cfg.Socket, s.cfg.Socket + ".ttrpc"} {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("stop containerd: %w", err)
		}
	}
	return nil
}

// pid is who serves the socket, as the kernel says: no file can be stale.
func (s *Supervisor) pid() (int, error) {
	conn, err := net.Dial("unix", s.cfg.Socket)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return int(cred.Pid), nil
}

// launch starts a containerd. The returned channel gets its end.
func (s *Supervisor) launch() (<-chan error, error) {
	for _, dir := range []string{s.cfg.RootDir, s.cfg.StateDir, filepath.Dir(s.cfg.Socket)} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("start containerd: %w", err)
		}
	}
	config := filepath.Join(s.cfg.RootDir, "config.toml")
	if err := os.WriteFile(config, []byte(s.config()), 0o600); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	log, err := os.OpenFile(s.cfg.LogFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.cfg.Binary, "--config", config)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.cfg.Binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	s.logger.Info("containerd started", "pid", cmd.Process.Pid, "socket", s.cfg.Socket)
	exited := make(chan error, 1)
	// This ends with the containerd, which may be long after Run: somebody has to reap a child.
	go func() {
		err := cmd.Wait()
		if err == nil {
			err = errExited
		}
		exited <- err
	}()
	return exited, nil
}

// config is containerd's configuration: what runs containers, and nothing else.
func (s *Supervisor) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version = 3\nroot = %q\nstate = %q\noom_score = 0\n", s.cfg.RootDir, s.cfg.StateDir)
	b.WriteString("disabled_plugins = [\n")
	for _, plugin := range []string{
		"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
		"io.containerd.podsandbox.controller.v1.podsandbox", "io.containerd.sandbox.controller.v1.shim",
		"io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
		"io.containerd.monitor.container.v1.restart", "io.containerd.internal.v1.restart", "io.containerd.internal.v1.opt",
		"io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
		"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs",
		"io.containerd.differ.v1.erofs", "io.containerd.mount-handler.v1.erofs",
		"io.containerd.image-verifier.v1.bindir", "io.containerd.monitor.task.v1.cgroups",
	} {
		fmt.Fprintf(&b, "  %q,\n", plugin)
	}
	b.WriteString("]\n")
	fmt.Fprintf(&b, "[debug]\n  level = \"warn\"\n[grpc]\n  address = %q\n[ttrpc]\n  address = %q\n",
		s.cfg.Socket, s.cfg.Socket+".ttrpc")
	fmt.Fprintf(&b, "[plugins.'io.containerd.shim.v1.manager']\n  socket_dir = %q\n", s.ShimSocketDir())
	return b.String()
}

// await waits until the containerd answers.
func (s *Supervisor) await(ctx context.Context, exited <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd does not answer at %s: %w", s.cfg.Socket, err)
		case err := <-exited:
			return fmt.Errorf("containerd ended (%w); its log is %s", err, s.cfg.LogFile)
		case <-tick.C:
		}
	}
}

func (s *Supervisor) answers(ctx context.Context) error {
	// A client waits longer after each refusal; a look at the socket first keeps the start quick.
	conn, err := net.Dial("unix", s.cfg.Socket)
	if err != nil {
		return err
	}
	_ = conn.Close()
	c, err := client.New(s.cfg.Socket)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Version(ctx)
	return err
}

// watch returns when the containerd dies, or ctx ends.
func (s *Supervisor) watch(ctx context.Context) error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	process, err := openProcess(pid)
	if err != nil {
		return err
	}
	defer process.close()
	return process.wait(ctx)
}

// process is a process by its pidfd, which never means another one that got the same number.
type process struct{ file *os.File }

func openProcess(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	return &process{file: os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid))}, nil
}

func (p *process) close() { _ = p.file.Close() }

func (p *process) signal(sig unix.Signal) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

// wait returns nil once the process has exited.
func (p *process) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	// A pidfd is readable once its process has exited.
	err = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n > 0
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
