// Package volume makes the directories that a pod's containers mount, and removes them with the pod.
//
// It owns everything below <dir>/<pod uid>/volumes and volume-subpaths. It reads no API object by itself: ConfigMaps and
// Secrets are handed to it. It stands between the pod worker and the runtime, which binds what it is told to bind.
package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/kit/mounts"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/containerspec"
	"trireme.dev/services/nodeagent/internal/podconfig"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// Config of a Manager.
type Config struct {
	// Dir holds a folder for each pod, named by its UID.
	Dir string
	// Simulated touches nothing of the machine: volumes are checked, not made.
	Simulated bool
}

// Manager makes and removes volumes. Calls about one pod are made by one goroutine at a time.
type Manager struct{ cfg Config }

// New returns a manager.
func New(cfg Config) *Manager { return &Manager{cfg: cfg} }

// Error says that a volume could not be set up.
type Error struct {
	Volume string
	Err    error
}

// Error reads as Kubernetes' event does.
func (e *Error) Error() string {
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.Volume, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Pod is what volumes of a pod are made from.
type Pod struct {
	*corev1.Pod
	// Node and PodIPs are what the downward API shows.
	Node   containerspec.Node
	PodIPs []string
	// Objects are the ConfigMaps and Secrets.
	Objects *podconfig.Objects
}

func (m *Manager) podDir(uid string) string { return filepath.Join(m.cfg.Dir, uid) }

// Setup makes all volumes of a pod, or brings those that show API objects up to date, and returns the host path of
// each by name. It may be repeated. Its errors are joined *Error, one for each volume that failed.
func (m *Manager) Setup(pod Pod) (map[string]string, error) {
	paths := map[string]string{}
	var errs []error
	for _, v := range pod.GetSpec().GetVolumes() {
		path, err := m.setup(pod, v)
		if err != nil {
			errs = append(errs, &Error{v.GetName(), err})
			continue
		}
		paths[v.GetName()] = path
	}
	return paths, errors.Join(errs...)
}

// kind returns the name of the one source that is set, as manifests spell it; emptyDir where there is none.
func kind(v *corev1.Volume) string {
	name := "emptyDir"
	v.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if f.Message() != nil {
			name = f.JSONName()
			return false
		}
		return true
	})
	return name
}

func (m *Manager) setup(pod Pod, v *corev1.Volume) (string, error) {
	k := kind(v)
	dir := filepath.Join(m.podDir(pod.GetMetadata().GetUid()), "volumes", k, v.GetName())
	switch k {
	case "hostPath":
		return m.hostPath(v.GetHostPath())
	case "emptyDir":
		return dir, m.emptyDir(dir, v.GetEmptyDir())
	case "configMap", "secret", "downwardAPI", "projected":
		files, err := payload(pod, v)
		if err != nil {
			return "", err
		}
		if m.cfg.Simulated {
			return dir, nil
		}
		if k == "secret" || hasSecret(v.GetProjected()) {
			if err := mountTmpfs(dir, ""); err != nil {
				return "", err
			}
		}
		return dir, writeAtomically(dir, files)
	}
	return "", fmt.Errorf("volumes of kind %s are not supported: use emptyDir, hostPath, configMap, secret, downwardAPI or projected", k)
}

func hasSecret(p *corev1.ProjectedVolumeSource) bool {
	for _, s := range p.GetSources() {
		if s.GetSecret() != nil {
			return true
		}
	}
	return false
}

func (m *Manager) emptyDir(dir string, src *corev1.EmptyDirVolumeSource) error {
	if m.cfg.Simulated {
		return nil
	}
	switch src.GetMedium() {
	case "":
	case "Memory":
		return mountTmpfs(dir, src.GetSizeLimit())
	default:
		return fmt.Errorf("emptyDir medium %q is not supported: use Memory, or none", src.GetMedium())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("emptyDir: %w", err)
	}
	// Not MkdirAll's mode, which the process's mask cuts: any user of any image may write.
	if err := os.Chmod(dir, 0o777); err != nil {
		return fmt.Errorf("emptyDir: %w", err)
	}
	return nil
}

// hostPath checks what is at a path of the node, and makes it where its type says so.
func (m *Manager) hostPath(src *corev1.HostPathVolumeSource) (string, error) {
	path := src.GetPath()
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("hostPath %q is not absolute", path)
	}
	if m.cfg.Simulated {
		return path, nil
	}
	switch src.GetType() {
	case "DirectoryOrCreate":
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", fmt.Errorf("hostPath type check failed: %w", err)
		}
	case "FileOrCreate":
		f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
		if err != nil {
			return "", fmt.Errorf("hostPath type check failed: %w", err)
		}
		if err := f.Close(); err != nil {
			return "", fmt.Errorf("hostPath type check failed: %w", err)
		}
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && src.GetType() == "" {
		// As Kubernetes does: a path without a type that nobody has made becomes a directory.
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", fmt.Errorf("hostPath: %w", err)
		}
		return path, nil
	}
	if err != nil {
		return "", fmt.Errorf("hostPath type check failed: %w", err)
	}
	mode := info.Mode()
	ok, want := true, ""
	switch src.GetType() {
	case "Directory", "DirectoryOrCreate":
		ok, want = mode.IsDir(), "a directory"
	case "File", "FileOrCreate":
		ok, want = mode.IsRegular(), "a file"
	case "Socket":
		ok, want = mode&fs.ModeSocket != 0, "a socket file"
	case "CharDevice":
		ok, want = mode&fs.ModeCharDevice != 0, "a character device"
	case "BlockDevice":
		ok, want = mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0, "a block device"
	}
	if !ok {
		return "", fmt.Errorf("hostPath type check failed: %s is not %s", path, want)
	}
	return path, nil
}

// Mounts resolves a container's mounts to paths of the host. Paths are those that Setup returned, expand replaces
// variables in subPathExpr.
func (m *Manager) Mounts(pod *corev1.Pod, c *corev1.Container, paths map[string]string, expand func(string) string) ([]runtime.Mount, error) {
	var mounts []runtime.Mount
	for i, vm := range c.GetVolumeMounts() {
		host, ok := paths[vm.GetName()]
		if !ok {
			return nil, fmt.Errorf("container %s mounts volume %q, which the pod doesn't have", c.GetName(), vm.GetName())
		}
		sub := vm.GetSubPath()
		if vm.GetSubPathExpr() != "" {
			sub = expand(vm.GetSubPathExpr())
		}
		if sub != "" {
			if !filepath.IsLocal(sub) {
				return nil, fmt.Errorf("subPath %q of volume %q leads out of the volume", sub, vm.GetName())
			}
			target := filepath.Join(m.podDir(pod.GetMetadata().GetUid()), "volume-subpaths", vm.GetName(), c.GetName(), fmt.Sprint(i))
			var err error
			if host, err = m.subPath(host, sub, target); err != nil {
				return nil, fmt.Errorf("prepare subPath %q of volume %q: %w", sub, vm.GetName(), err)
			}
		}
		mounts = append(mounts, runtime.Mount{
			HostPath: host, ContainerPath: containerPath(vm.GetMountPath()), Propagation: propagation(vm.GetMountPropagation()),
			ReadOnly: vm.GetReadOnly() || readOnly(pod, vm.GetName()),
		})
	}
	return mounts, nil
}

func containerPath(p string) string {
	if !filepath.IsAbs(p) {
		return filepath.Join("/", p)
	}
	return p
}

// readOnly volumes show API objects: what a container wrote there would vanish with the next update.
func readOnly(pod *corev1.Pod, name string) bool {
	for _, v := range pod.GetSpec().GetVolumes() {
		if v.GetName() == name {
			return v.GetConfigMap() != nil || v.GetSecret() != nil || v.GetDownwardApi() != nil || v.GetProjected() != nil
		}
	}
	return false
}

func propagation(p string) string {
	switch p {
	case "HostToContainer":
		return "rslave"
	case "Bidirectional":
		return "rshared"
	}
	return "private"
}

// subPath finds a path within a volume without leaving it through a symbolic link, and makes it a directory where
// nothing is there. What comes back stays what was checked: it is bound by descriptor.
func (m *Manager) subPath(volume, sub, target string) (string, error) {
	if m.cfg.Simulated {
		return filepath.Join(volume, sub), nil
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()
	f, err := root.Open(sub)
	if errors.Is(err, fs.ErrNotExist) {
		if err := root.MkdirAll(sub, 0o755); err != nil {
			return "", err
		}
		f, err = root.Open(sub)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	return bindFile(f, filepath.Join(volume, sub), target)
}

// Teardown unmounts and removes all that a pod's volumes took, its folder included. It may be repeated.
func (m *Manager) Teardown(uid string) error {
	if uid == "" {
		return errors.New("remove volumes: no pod uid")
	}
	if m.cfg.Simulated {
		return nil
	}
	dir := m.podDir(uid)
	if err := mounts.Unmount(dir); err != nil {
		return fmt.Errorf("unmount volumes of pod %s: %w", uid, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove volumes of pod %s: %w", uid, err)
	}
	return nil
}

// UIDs lists the pods of which something is left.
func (m *Manager) UIDs() ([]string, error) {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("list pods with volumes: %w", err)
	}
	var uids []string
	for _, e := range entries {
		if e.IsDir() {
			uids = append(uids, e.Name())
		}
	}
	return uids, nil
}
