//go:build linux

package containerd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/moby/sys/signal"
	"golang.org/x/sys/unix"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// Labels of containerd's containers. They are how pods are found again.
const (
	labelUID         = "trireme.dev/pod-uid"
	labelNamespace   = "trireme.dev/pod-namespace"
	labelPod         = "trireme.dev/pod-name"
	labelName        = "trireme.dev/container-name"
	labelAttempt     = "trireme.dev/attempt"
	labelHash        = "trireme.dev/spec-hash"
	labelKind        = "trireme.dev/kind" // init, ephemeral, app
	labelImageID     = "trireme.dev/image-id"
	labelLog         = "trireme.dev/log-path"
	labelTermination = "trireme.dev/termination-message-path"
	labelStopSignal  = "trireme.dev/stop-signal"
	labelStreams     = "trireme.dev/streams" // tty and stdin, where the task has them
	labelImage       = "trireme.dev/image"
	labelCgroup      = "trireme.dev/cgroup"
)

// container is what is known of one container. Its fields are guarded by Runtime.mu, but for those that never change.
type container struct {
	id, podUID               string
	namespace, pod           string
	name, specHash           string
	attempt                  int
	init, ephemeral, tty     bool
	stdin                    bool
	image, imageID           string
	logPath, terminationPath string
	cgroup                   string
	stopSignal               unix.Signal
	createdAt                time.Time
	dir, runDir              string
	state                    runtime.ContainerState
	life                     life
	message                  string
	rootfs                   []mount.Mount // nil where containerd has to be asked
	output                   *output       // of a running container
	exited                   chan struct{} // closed once the exit is recorded
	settling, deleting       sync.Mutex
	isLost                   atomic.Bool
}

// life is the record in state.json: what containerd does not keep.
type life struct {
	StartedAt, FinishedAt time.Time
	ExitCode              int
	OOMKilled             bool
	StartError            string
}

func (c *container) view() *runtime.Container {
	return &runtime.Container{
		ID: c.id, Name: c.name, Attempt: c.attempt, SpecHash: c.specHash, Init: c.init, Ephemeral: c.ephemeral,
		Image: c.image, ImageID: c.imageID, State: c.state, CreatedAt: c.createdAt, StartedAt: c.life.StartedAt,
		FinishedAt: c.life.FinishedAt, ExitCode: c.life.ExitCode, OOMKilled: c.life.OOMKilled,
		StartError: c.life.StartError, LogPath: c.logPath, TerminationMessage: c.message,
	}
}

func (c *container) stateFile() string       { return filepath.Join(c.dir, "state.json") }
func (c *container) terminationFile() string { return filepath.Join(c.dir, "termination-message") }

// CreateContainer makes containerd's object first and the snapshot second: whatever happens in between, the object
// names the snapshot, so that nothing is left that nobody knows.
func (r *Runtime) CreateContainer(ctx context.Context, spec runtime.ContainerSpec) (string, error) {
	id, err := r.createContainer(ctx, spec)
	if err != nil {
		return "", fmt.Errorf("create container %s of pod %s: %w", spec.Name, spec.PodUID, err)
	}
	r.hints.Notify(spec.PodUID)
	return id, nil
}

func (r *Runtime) createContainer(ctx context.Context, spec runtime.ContainerSpec) (string, error) {
	r.mu.Lock()
	p, ok := r.pods[spec.PodUID]
	var s *sandbox
	if ok {
		s = p.sandbox
		for _, c := range p.containers {
			if c.name == spec.Name && c.attempt == spec.Attempt {
				r.mu.Unlock()
				return "", fmt.Errorf("attempt %d of it exists", spec.Attempt)
			}
		}
	}
	r.mu.Unlock()
	if s == nil {
		return "", fmt.Errorf("sandbox of pod %s: %w", spec.PodUID, runtime.ErrNotFound)
	}
	image, err := r.resolve(ctx, spec.Image)
	if err != nil {
		return "", err
	}
	stop := spec.StopSignal
	if stop == "" {
		stop = image.config.StopSignal
	}
	if stop == "" {
		stop = "SIGTERM"
	}
	number, err := signal.ParseSignal(stop)
	if err != nil {
		return "", fmt.Errorf("stop signal %q: %w", stop, err)
	}
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	id := hex.EncodeToString(raw)
	c := &container{
		id: id, podUID: spec.PodUID, namespace: s.Namespace, pod: s.Name, name: spec.Name, specHash: spec.SpecHash,
		attempt: spec.Attempt, init: spec.Init, ephemeral: spec.Ephemeral, tty: spec.TTY, stdin: spec.Stdin,
		image: spec.Image, imageID: image.id, logPath: spec.LogPath, terminationPath: spec.TerminationMessagePath,
		cgroup: filepath.Join(r.cgroups.pod(spec.PodUID, s.QOS), id), stopSignal: unix.Signal(number),
		state: runtime.StateCreated, exited: make(chan struct{}),
	}
	r.place(c)
	if err := os.MkdirAll(c.dir, 0o711); err != nil {
		return "", err
	}
	if c.terminationPath != "" {
		if err := os.WriteFile(c.terminationFile(), nil, 0o666); err != nil {
			return "", err
		}
		// The container's user may be anyone; the umask must not stand in the way.
		if err := os.Chmod(c.terminationFile(), 0o666); err != nil {
			return "", err
		}
	}
	if err := r.createObject(ctx, c, spec, s, image); err != nil {
		return "", errors.Join(err, os.RemoveAll(c.dir))
	}
	r.mu.Lock()
	p.containers = append(p.containers, c)
	r.containers[id] = c
	r.mu.Unlock()
	return id, nil
}

// place says where a container's files are.
func (r *Runtime) place(c *container) {
	c.dir = filepath.Join(r.stateDir(c.podUID), "containers", c.id)
	c.runDir = filepath.Join(r.runDir(c.podUID), "containers", c.id)
}

func (r *Runtime) createObject(ctx context.Context, c *container, spec runtime.ContainerSpec, s *sandbox, image *imageConfig) error {
	ociSpec, err := r.ociSpec(ctx, c, spec, s, image)
	if err != nil {
		return err
	}
	specAny, err := typeurl.MarshalAny(ociSpec)
	if err != nil {
		return err
	}
	optionsAny, err := typeurl.MarshalAny(&options.Options{
		BinaryName: r.cfg.RuncBinary, Root: filepath.Join(r.cfg.RunDir, "runc"),
	})
	if err != nil {
		return err
	}
	kind := "app"
	if c.init {
		kind = "init"
	} else if c.ephemeral {
		kind = "ephemeral"
	}
	object, err := r.client.ContainerService().Create(ctx, containers.Container{
		ID: c.id, Image: image.name, Spec: specAny, Snapshotter: r.cfg.Snapshotter, SnapshotKey: c.id,
		Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2", Options: optionsAny},
		Labels: map[string]string{
			labelUID: c.podUID, labelNamespace: c.namespace, labelPod: c.pod, labelName: c.name,
			labelAttempt: strconv.Itoa(c.attempt), labelHash: c.specHash, labelKind: kind, labelImageID: c.imageID,
			labelLog: c.logPath, labelTermination: c.terminationPath, labelStopSignal: strconv.Itoa(int(c.stopSignal)),
			labelStreams: streams(c), labelCgroup: c.cgroup, labelImage: c.image,
		},
	})
	if err != nil {
		return err
	}
	c.createdAt = object.CreatedAt
	if c.rootfs, err = r.snapshotter.Prepare(ctx, c.id, image.chainID); err != nil {
		// Gone in spite of what is remembered: someone has removed it from below.
		r.forgetImage(image)
		err = fmt.Errorf("prepare snapshot: %w", err)
		if derr := r.client.ContainerService().Delete(context.WithoutCancel(ctx), c.id); derr != nil {
			err = errors.Join(err, derr)
		}
		return err
	}
	return nil
}

func streams(c *container) string {
	var names []string
	if c.tty {
		names = append(names, "tty")
	}
	if c.stdin {
		names = append(names, "stdin")
	}
	return strings.Join(names, ",")
}

// fromObject reads a container from its labels.
func (r *Runtime) fromObject(o containers.Container) *container {
	number := func(label string) int {
		n, _ := strconv.Atoi(o.Labels[label])
		return n
	}
	c := &container{
		id: o.ID, podUID: o.Labels[labelUID], namespace: o.Labels[labelNamespace], pod: o.Labels[labelPod],
		name: o.Labels[labelName], specHash: o.Labels[labelHash], attempt: number(labelAttempt),
		init: o.Labels[labelKind] == "init", ephemeral: o.Labels[labelKind] == "ephemeral",
		tty:   strings.Contains(o.Labels[labelStreams], "tty"),
		stdin: strings.Contains(o.Labels[labelStreams], "stdin"),
		image: o.Labels[labelImage], imageID: o.Labels[labelImageID],
		logPath: o.Labels[labelLog], terminationPath: o.Labels[labelTermination], cgroup: o.Labels[labelCgroup],
		stopSignal: unix.Signal(number(labelStopSignal)), createdAt: o.CreatedAt,
		state: runtime.StateCreated, exited: make(chan struct{}),
	}
	r.place(c)
	return c
}

// loadContainers takes up the containers that containerd has.
func (r *Runtime) loadContainers(ctx context.Context) error {
	objects, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	sort.Slice(objects, func(i, j int) bool { return objects[i].CreatedAt.Before(objects[j].CreatedAt) })
	statuses, err := r.taskStatuses(ctx)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.Labels[labelUID] == "" {
			continue
		}
		c := r.fromObject(o)
		if err := readJSON(c.stateFile(), &c.life); err != nil && !errors.Is(err, os.ErrNotExist) {
			// A torn record says as little as none; the task itself tells the rest.
			r.logger.Warn("container's record is unreadable", "container", c.id, "error", err)
		}
		status := statuses[c.id].GetStatus()
		if c.life.StartedAt.IsZero() && c.life.FinishedAt.IsZero() &&
			(status == tasktypes.Status_RUNNING || status == tasktypes.Status_STOPPED) {
			// The last runtime was killed between starting it and writing that down.
			c.life.StartedAt = c.createdAt
		}
		switch {
		case !c.life.FinishedAt.IsZero():
			c.state, c.message = runtime.StateExited, c.readMessage()
			close(c.exited)
		case !c.life.StartedAt.IsZero():
			c.state = runtime.StateRunning
			if err := r.reopenOutput(c); err != nil {
				r.logger.Warn("container's output is not copied", "container", c.id, "error", err)
			}
		}
		p := r.pod(c.podUID)
		p.namespace, p.name = c.namespace, c.pod
		p.containers = append(p.containers, c)
		if statuses[c.id] != nil {
			p.tasks[c.id] = true
		}
		r.containers[c.id] = c
	}
	return r.resync(ctx)
}

// RemoveContainer removes the task, should one be left, then the snapshot, then the object that names it.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, err := r.find(id)
	if err != nil {
		return nil
	}
	r.mu.Lock()
	running := c.state == runtime.StateRunning
	r.mu.Unlock()
	if running {
		return fmt.Errorf("remove container %s: it is running", id)
	}
	// An exit that is just being settled deletes its task; that comes first.
	c.deleting.Lock()
	defer c.deleting.Unlock()
	if err := r.deleteTask(ctx, c); err != nil {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	if err := r.snapshotter.Remove(ctx, id); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove container %s: snapshot: %w", id, err)
	}
	if err := r.client.ContainerService().Delete(ctx, id); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	for _, dir := range []string{c.runDir, c.dir} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove container %s: %w", id, err)
		}
	}
	r.mu.Lock()
	delete(r.containers, id)
	if p, ok := r.pods[c.podUID]; ok {
		for i := range p.containers {
			if p.containers[i] == c {
				p.containers = append(p.containers[:i:i], p.containers[i+1:]...)
				break
			}
		}
		r.dropIfEmpty(p)
	}
	r.mu.Unlock()
	r.hints.Notify(c.podUID)
	return nil
}

func (r *Runtime) find(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.containers[id]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("container %s: %w", id, runtime.ErrNotFound)
}

func isNotFound(err error) bool { return errdefs.IsNotFound(err) }
