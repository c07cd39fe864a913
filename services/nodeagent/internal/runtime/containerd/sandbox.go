//go:build linux

package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trireme.dev/client/tracing"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// pod is what a node has of one pod.
type pod struct {
	uid, namespace, name string
	sandbox              *sandbox // nil where only containers are left
	containers           []*container
	// task is held while a task of the pod is made or deleted: they share a shim, which ends with the last one.
	task sync.Mutex
	// tasks are the containers that have one; guarded by task.
	tasks map[string]bool
}

// sandbox is the record in sandbox.json.
type sandbox struct {
	Namespace, Name, Hostname     string
	HostNetwork, HostPID, HostIPC bool
	IPs                           []string
	QOS                           runtime.QOSClass
	CreatedAt                     time.Time
}

// The namespaces that a pod's containers share, by their names under /proc/PID/ns.
var sharedNamespaces = map[string]uintptr{"net": unix.CLONE_NEWNET, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS}

// own lists the namespaces that the pod does not share with the node.
func (s *sandbox) own() []string {
	var names []string
	if !s.HostNetwork {
		// A pod in the node's network has the node's name too.
		names = append(names, "net", "uts")
	}
	if !s.HostIPC {
		names = append(names, "ipc")
	}
	return names
}

// CreateSandbox makes the pod's namespaces, network, cgroup and files, in that order, and then its record. A runtime
// that is killed in between leaves no record; the next call makes everything anew.
func (r *Runtime) CreateSandbox(ctx context.Context, spec runtime.SandboxSpec) (*runtime.Sandbox, error) {
	r.mu.Lock()
	p := r.pod(spec.PodUID)
	exists := p.sandbox != nil
	p.namespace, p.name = spec.Namespace, spec.Name
	r.mu.Unlock()
	if exists {
		return r.view(spec.PodUID).Sandbox, nil
	}
	s := &sandbox{
		Namespace: spec.Namespace, Name: spec.Name, Hostname: spec.Hostname,
		HostNetwork: spec.HostNetwork, HostPID: spec.HostPID, HostIPC: spec.HostIPC, QOS: spec.Cgroup.QOS,
		CreatedAt: time.Now().UTC(),
	}
	err := r.makeSandbox(ctx, spec, s)
	if err != nil {
		err = errors.Join(fmt.Errorf("create sandbox of pod %s: %w", spec.PodUID, err),
			r.destroySandbox(context.WithoutCancel(ctx), spec.PodUID))
	}
	r.mu.Lock()
	if err == nil {
		p.sandbox = s
	}
	r.dropIfEmpty(p)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r.hints.Notify(spec.PodUID)
	return r.view(spec.PodUID).Sandbox, nil
}

func (r *Runtime) makeSandbox(ctx context.Context, spec runtime.SandboxSpec, s *sandbox) error {
	uid := spec.PodUID
	if uid == "" || strings.ContainsAny(uid, "/\x00") || strings.HasPrefix(uid, ".") {
		return fmt.Errorf("pod UID %q is not a name", uid)
	}
	if !s.HostNetwork && !r.network.Ready() {
		return runtime.ErrNetworkNotReady
	}
	if s.HostNetwork {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		s.Hostname = name
	}
	for _, dir := range []string{r.runDir(uid), r.stateDir(uid)} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	if err := makeNamespaces(r.runDir(uid), s.own(), s.Hostname); err != nil {
		return err
	}
	if !s.HostNetwork {
		ctx, span := tracing.Start(ctx, runtime.NetworkSpan)
		ips, err := r.network.Attach(ctx, uid, filepath.Join(r.runDir(uid), "net"), spec.HostPorts)
		tracing.Fail(span, err)
		span.End()
		if err != nil {
			return err
		}
		s.IPs = ips
	}
	if err := r.cgroups.createPod(uid, spec.Cgroup); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if err := r.makeFiles(uid, s); err != nil {
		return err
	}
	return writeJSON(filepath.Join(r.stateDir(uid), "sandbox.json"), s)
}

// makeNamespaces makes namespaces on a thread of its own and pins each one at a file in dir.
func makeNamespaces(dir string, names []string, hostname string) error {
	if len(names) == 0 {
		return nil
	}
	var flags uintptr
	for _, name := range names {
		path := filepath.Join(dir, name)
		unpin(path)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		flags |= sharedNamespaces[name]
	}
	return onSpareThread(func() error {
		if err := unix.Unshare(int(flags)); err != nil {
			return fmt.Errorf("make namespaces %v: %w", names, err)
		}
		if flags&unix.CLONE_NEWUTS != 0 {
			if err := unix.Sethostname([]byte(hostname)); err != nil {
				return fmt.Errorf("set hostname %q: %w", hostname, err)
			}
		}
		if flags&unix.CLONE_NEWNET != 0 {
			// As other container runtimes do: in a pod's own network any port and ping are for everyone.
			for file, value := range map[string]string{
				"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647",
			} {
				if err := os.WriteFile("/proc/sys/net/ipv4/"+file, []byte(value), 0o644); err != nil {
					return fmt.Errorf("set sysctl: %w", err)
				}
			}
		}
		for _, name := range names {
			source := fmt.Sprintf("/proc/self/task/%d/ns/%s", unix.Gettid(), name)
			if err := unix.Mount(source, filepath.Join(dir, name), "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("pin namespace %s: %w", name, err)
			}
		}
		return nil
	})
}

// onSpareThread runs a function on a thread that ends with it. It is never the process' first thread: that one can't
// end, and /proc/self would show its namespaces as the whole process'.
func onSpareThread(do func() error) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// While this goroutine holds the first thread, another one can't get it.
			done <- onSpareThread(do)
			goruntime.UnlockOSThread()
			return
		}
		// Never unlocked: so the thread ends.
		done <- do()
	}()
	return <-done
}

func unpin(path string) {
	// Repeated, since a pin may have been made twice by a runtime that was killed.
	for unix.Unmount(path, unix.MNT_DETACH) == nil {
	}
}

// makeFiles makes what a pod's containers share beside namespaces: the files of /etc, and /dev/shm.
func (r *Runtime) makeFiles(uid string, s *sandbox) error {
	etc := filepath.Join(r.stateDir(uid), "etc")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return err
	}
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::\tip6-localnet\n" +
		"fe00::\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	for _, ip := range s.IPs {
		hosts += ip + "\t" + s.Hostname + "\n"
	}
	resolv, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.HostNetwork {
		if own, err := os.ReadFile("/etc/hosts"); err == nil {
			hosts = string(own)
		}
	}
	for name, content := range map[string]string{
		"hosts": hosts, "hostname": s.Hostname + "\n", "resolv.conf": string(resolv),
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if s.HostIPC {
		return nil
	}
	shm := filepath.Join(r.runDir(uid), "shm")
	if err := os.MkdirAll(shm, 0o1777); err != nil {
		return err
	}
	unpin(shm)
	if err := unix.Mount("shm", shm, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size=65536k"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return nil
}

// ready says whether the sandbox can take containers. The lock is held.
func (r *Runtime) ready(p *pod) bool {
	for _, name := range p.sandbox.own() {
		var stat unix.Statfs_t
		if err := unix.Statfs(filepath.Join(r.runDir(p.uid), name), &stat); err != nil || stat.Type != unix.NSFS_MAGIC {
			return false
		}
	}
	return p.sandbox.HostNetwork || r.network.Attached(p.uid)
}

// RemoveSandbox kills and removes the pod's containers at the same time, and then the rest.
func (r *Runtime) RemoveSandbox(ctx context.Context, podUID string) error {
	r.mu.Lock()
	p, ok := r.pods[podUID]
	var containers []*container
	if ok {
		containers = append(containers, p.containers...)
	}
	r.mu.Unlock()
	errs := make([]error, len(containers))
	var wait sync.WaitGroup
	for i, c := range containers {
		wait.Go(func() {
			if errs[i] = r.StopContainer(ctx, c.id, 0); errs[i] == nil {
				errs[i] = r.RemoveContainer(ctx, c.id)
			}
		})
	}
	wait.Wait()
	err := errors.Join(errs...)
	if err == nil {
		err = r.destroySandbox(ctx, podUID)
	}
	if err != nil {
		return fmt.Errorf("remove sandbox of pod %s: %w", podUID, err)
	}
	if ok {
		r.mu.Lock()
		p.sandbox = nil
		r.dropIfEmpty(p)
		r.mu.Unlock()
		r.hints.Notify(podUID)
	}
	return nil
}

// destroySandbox removes what makeSandbox made, wherever that stopped. The record goes last.
func (r *Runtime) destroySandbox(ctx context.Context, uid string) error {
	if uid == "" || strings.ContainsAny(uid, "/\x00") || strings.HasPrefix(uid, ".") {
		return nil
	}
	if err := r.network.Detach(ctx, uid); err != nil {
		return err
	}
	run := r.runDir(uid)
	for _, name := range []string{"net", "ipc", "uts", "shm"} {
		unpin(filepath.Join(run, name))
	}
	if err := os.RemoveAll(run); err != nil {
		return err
	}
	if err := r.cgroups.removePod(uid); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return os.RemoveAll(r.stateDir(uid))
}

// loadPods reads the records of pods.
func (r *Runtime) loadPods() error {
	entries, err := os.ReadDir(filepath.Join(r.cfg.StateDir, "pods"))
	if err != nil {
		return fmt.Errorf("load pods: %w", err)
	}
	for _, entry := range entries {
		uid := entry.Name()
		s := &sandbox{}
		err := readJSON(filepath.Join(r.stateDir(uid), "sandbox.json"), s)
		if errors.Is(err, fs.ErrNotExist) {
			// Killed before it was made, or after it was removed. Containers, if any, are found by their labels.
			r.logger.Info("half a sandbox is removed", "pod_uid", uid)
			if err := r.destroySandbox(context.Background(), uid); err != nil {
				r.logger.Warn("half a sandbox stays", "pod_uid", uid, "error", err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("load pod %s: %w", uid, err)
		}
		r.pods[uid] = &pod{uid: uid, tasks: map[string]bool{}, namespace: s.Namespace, name: s.Name, sandbox: s}
	}
	return nil
}

// writeJSON replaces a file in one step.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
