package simulated

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"trireme.dev/services/nodeagent/internal/logs"
	"trireme.dev/services/nodeagent/internal/network"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/hint"
)

// Host is the simulated machine: what goes on living when an agent dies. With a state folder it is kept in one file
// per pod, and programs go on from where their clock says they should be.
type Host struct {
	dir    string
	logger *slog.Logger
	hints  hint.Hub

	mu         sync.Mutex
	cidr       netip.Prefix
	last       netip.Addr
	pods       map[string]*pod
	containers map[string]*pod // by container ID
	imported   map[string]bool
	closed     bool
}

type pod struct {
	UID, Namespace, Name, Hostname string
	HostNetwork                    bool
	IPs                            []string
	CreatedAt                      time.Time
	Containers                     []*container
}

type container struct {
	runtime.Container
	Command, Env    []string
	Devices         []string
	TerminationPath string
	// Step is the next step of the program.
	Step int

	// resumeAt is when that step begins.
	resumeAt time.Time
	timer    *time.Timer
	done     chan struct{}
}

// NewHost makes a host from a state folder, or an empty one where dir is empty.
func NewHost(dir string, logger *slog.Logger) (*Host, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	h := &Host{
		dir: dir, logger: logger,
		pods: map[string]*pod{}, containers: map[string]*pod{}, imported: map[string]bool{},
	}
	if dir == "" {
		return h, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("simulated state: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("simulated state: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, file := range files {
		if err := h.load(file); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *Host) load(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("simulated state: %w", err)
	}
	p := &pod{}
	if err := json.Unmarshal(data, p); err != nil {
		return fmt.Errorf("simulated state %s: %w", file, err)
	}
	h.pods[p.UID] = p
	for _, c := range p.Containers {
		h.containers[c.ID] = p
		c.done = make(chan struct{})
		if c.State == runtime.StateExited {
			close(c.done)
		}
		if c.State == runtime.StateRunning {
			c.resumeAt = c.StartedAt
			for _, s := range parseProgram(c.Command).steps[:c.Step] {
				c.resumeAt = c.resumeAt.Add(s.wait)
			}
			h.resume(p, c)
		}
	}
	return nil
}

// Close stops the clock: nothing happens on this host any more.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, p := range h.pods {
		for _, c := range p.Containers {
			if c.timer != nil {
				c.timer.Stop()
			}
		}
	}
}

// save and forget do nothing without a state folder.
func (h *Host) save(p *pod) error {
	if h.dir == "" {
		return nil
	}
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("save simulated pod %s: %w", p.UID, err)
	}
	file := filepath.Join(h.dir, p.UID+".json")
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return fmt.Errorf("save simulated pod %s: %w", p.UID, err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("save simulated pod %s: %w", p.UID, err)
	}
	return nil
}

func (h *Host) forget(uid string) error {
	if h.dir == "" {
		return nil
	}
	if err := os.Remove(filepath.Join(h.dir, uid+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget simulated pod %s: %w", uid, err)
	}
	return nil
}

func (h *Host) address() (string, error) {
	if !h.cidr.IsValid() {
		return "", runtime.ErrNetworkNotReady
	}
	used := map[string]bool{}
	for _, p := range h.pods {
		for _, ip := range p.IPs {
			used[ip] = true
		}
	}
	addr, ok := network.NextAddress(h.cidr, h.last, func(a netip.Addr) bool { return used[a.String()] })
	if !ok {
		return "", fmt.Errorf("no free address in %s", h.cidr)
	}
	h.last = addr
	return addr.String(), nil
}

func (h *Host) container(id string) (*pod, *container, error) {
	if p, ok := h.containers[id]; ok {
		for _, c := range p.Containers {
			if c.ID == id {
				return p, c, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("container %s: %w", id, runtime.ErrNotFound)
}

// resume runs a container's program from its next step up to one that waits, which sets a timer, or to its end. The
// lock is held.
func (h *Host) resume(p *pod, c *container) {
	steps := parseProgram(c.Command).steps
	code := 0
	for ; c.Step < len(steps); c.Step++ {
		switch s := steps[c.Step]; s.verb {
		case stepForever:
			return
		case stepExit:
			h.finish(p, c, s.code, 0)
			return
		case stepTrue:
			code = 0
		case stepFalse:
			code = 1
		case stepEcho:
			h.echo(c, s)
			code = 0
		case stepSleep:
			code = 0
			c.resumeAt = c.resumeAt.Add(s.wait)
			if wait := time.Until(c.resumeAt); wait > 0 {
				c.timer = time.AfterFunc(wait, func() { h.wake(p, c) })
				return
			}
		}
	}
	h.finish(p, c, code, 0)
}

func (h *Host) wake(p *pod, c *container) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || c.State != runtime.StateRunning {
		return
	}
	c.Step++
	h.resume(p, c)
	if c.State == runtime.StateRunning {
		h.mustSave(p)
	}
}

// finish ends a container. The lock is held.
func (h *Host) finish(p *pod, c *container, code, signal int) {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.State, c.ExitCode, c.FinishedAt = runtime.StateExited, code, time.Now()
	if signal != 0 {
		h.log(c, fmt.Sprintf("simulated container stopped by signal %d", signal))
	}
	close(c.done)
	h.hints.Notify(p.UID)
	h.mustSave(p)
}

// mustSave is for where nobody waits for the error. The pretence goes on without its record.
func (h *Host) mustSave(p *pod) {
	if err := h.save(p); err != nil {
		h.logger.Error("simulated pod is not recorded", "pod_uid", p.UID, "error", err)
	}
}

func (h *Host) echo(c *container, s step) {
	text := s.text
	if s.file == "" {
		h.log(c, text)
		return
	}
	if s.newline {
		text += "\n"
	}
	if filepath.Clean(s.file) == c.TerminationPath {
		c.TerminationMessage = text[:min(len(text), 4096)]
	}
}

func (h *Host) logStart(p *pod, c *container) {
	given := []string{}
	for _, e := range c.Env {
		for _, prefix := range []string{"NVIDIA_", "CUDA_", "TRIREME_", "RANK=", "WORLD_SIZE=", "MASTER_"} {
			if strings.HasPrefix(e, prefix) {
				given = append(given, e)
			}
		}
	}
	sort.Strings(given)
	line := fmt.Sprintf("simulated container %s of pod %s/%s started: image=%s command=%q",
		c.Name, p.Namespace, p.Name, c.Image, c.Command)
	if len(given) > 0 {
		line += " " + strings.Join(given, " ")
	}
	if len(c.Devices) > 0 {
		line += " devices=" + strings.Join(c.Devices, ",")
	}
	h.log(c, line)
}

// log appends one line to the container's log, opened for it alone: thousands of containers hold no file.
func (h *Host) log(c *container, line string) {
	if c.LogPath == "" {
		return
	}
	w, err := logs.Create(c.LogPath, logs.Rotation{})
	if err == nil {
		err = errors.Join(w.Copy(logs.Stdout, strings.NewReader(line+"\n")), w.Close())
	}
	if err != nil {
		h.logger.Warn("simulated container's log is lost", "container", c.ID, "error", err)
	}
}

func (h *Host) snapshot() []*runtime.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	pods := make([]*runtime.Pod, 0, len(h.pods))
	for _, p := range h.pods {
		pods = append(pods, p.view())
	}
	sort.Slice(pods, func(i, j int) bool { return pods[i].UID < pods[j].UID })
	return pods
}

func (p *pod) view() *runtime.Pod {
	v := &runtime.Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Sandbox: &runtime.Sandbox{
		Ready: true, HostNetwork: p.HostNetwork, IPs: append([]string(nil), p.IPs...), CreatedAt: p.CreatedAt,
	}}
	for _, c := range p.Containers {
		seen := c.Container
		v.Containers = append(v.Containers, &seen)
	}
	return v
}
