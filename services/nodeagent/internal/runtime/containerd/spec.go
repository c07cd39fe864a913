//go:build linux

package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// defaultCapabilities of a container that asks for nothing, as in other container runtimes.
var defaultCapabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
	"NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
}

// ociSpec says all that runc has to know of a container.
func (r *Runtime) ociSpec(
	ctx context.Context, c *container, spec runtime.ContainerSpec, s *sandbox, image *imageConfig,
) (*oci.Spec, error) {
	args := command(spec, image)
	if len(args) == 0 {
		return nil, errors.New("no command: neither the container nor its image has one")
	}
	who, err := r.processUser(ctx, spec.Security, image)
	if err != nil {
		return nil, err
	}
	cwd := "/"
	for _, dir := range []string{image.config.WorkingDir, spec.WorkingDir} {
		if dir != "" {
			cwd = dir
		}
	}
	if !filepath.IsAbs(cwd) {
		cwd = "/" + cwd
	}
	score := r.host.oomScore(spec.Resources.OOMScoreAdj)
	capabilities := r.capabilities(spec.Security)
	o := &oci.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: "rootfs", Readonly: spec.Security.ReadOnlyRootFS},
		Process: &specs.Process{
			Terminal: spec.TTY, Args: args, Cwd: cwd,
			Env:             environment(spec, s, image),
			User:            specs.User{UID: who.uid, GID: who.gid, AdditionalGids: who.groups},
			NoNewPrivileges: spec.Security.NoNewPrivileges,
			OOMScoreAdj:     &score,
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
		},
		Mounts: r.mounts(c, spec, s),
		Linux: &specs.Linux{
			CgroupsPath: c.cgroup,
			Resources:   resources(spec.Resources),
			Namespaces:  r.namespaces(c.podUID, s, spec),
		},
		Annotations: map[string]string{
			// One shim for all containers of the pod.
			"io.containerd.runc.v2.group": c.podUID,
		},
	}
	for name, value := range spec.Devices.Annotations {
		o.Annotations[name] = value
	}
	if spec.Security.Privileged {
		if err := privilege(ctx, o); err != nil {
			return nil, err
		}
	} else {
		r.confine(o)
	}
	if err := addDevices(ctx, o, spec.Devices); err != nil {
		return nil, err
	}
	if err := r.addCDI(o, spec.Devices.CDIDevices); err != nil {
		return nil, err
	}
	return o, nil
}

// command follows Kubernetes' rule: a command replaces both of the image's parts, args alone only its Cmd.
func command(spec runtime.ContainerSpec, image *imageConfig) []string {
	if len(spec.Command) > 0 {
		return slices.Concat(spec.Command, spec.Args)
	}
	if len(spec.Args) > 0 {
		return slices.Concat(image.config.Entrypoint, spec.Args)
	}
	return slices.Concat(image.config.Entrypoint, image.config.Cmd)
}

func environment(spec runtime.ContainerSpec, s *sandbox, image *imageConfig) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=" + s.Hostname}
	if spec.TTY {
		env = append(env, "TERM=xterm")
	}
	return mergeEnv(env, image.config.Env, spec.Env, spec.Devices.Env)
}

func (r *Runtime) namespaces(uid string, s *sandbox, spec runtime.ContainerSpec) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	if !s.HostPID {
		list = append(list, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}
	types := map[string]specs.LinuxNamespaceType{
		"net": specs.NetworkNamespace, "ipc": specs.IPCNamespace, "uts": specs.UTSNamespace,
	}
	for _, name := range s.own() {
		list = append(list, specs.LinuxNamespace{Type: types[name], Path: filepath.Join(r.runDir(uid), name)})
	}
	if r.cgroups.unified && !spec.Security.Privileged {
		list = append(list, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return list
}

func resources(res runtime.Resources) *specs.LinuxResources {
	l := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		CPU:     &specs.LinuxCPU{}, Memory: &specs.LinuxMemory{},
	}
	if res.CPUShares > 0 {
		l.CPU.Shares = &res.CPUShares
	}
	if res.CPUQuotaMicros > 0 {
		period := uint64(cpuPeriod)
		l.CPU.Quota, l.CPU.Period = &res.CPUQuotaMicros, &period
	}
	if res.MemoryLimitBytes > 0 {
		// No swap beyond the limit: swap counts memory and swap together.
		l.Memory.Limit, l.Memory.Swap = &res.MemoryLimitBytes, &res.MemoryLimitBytes
	}
	if res.PidsLimit > 0 {
		l.Pids = &specs.LinuxPids{Limit: &res.PidsLimit}
	}
	return l
}

// capabilities that the container gets, as far as this process has them.
func (r *Runtime) capabilities(security runtime.Security) []string {
	have := map[string]bool{}
	all := func(list []string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return plain(s) == "ALL" })
	}
	if security.Privileged || all(security.AddCapabilities) {
		for _, name := range capabilityNames {
			have[name] = true
		}
	} else if !all(security.DropCapabilities) {
		for _, name := range defaultCapabilities {
			have[name] = true
		}
	}
	if !security.Privileged {
		for _, name := range security.DropCapabilities {
			delete(have, plain(name))
		}
		for _, name := range security.AddCapabilities {
			if plain(name) != "ALL" {
				have[plain(name)] = true
			}
		}
	}
	list := []string{}
	for _, name := range capabilityNames {
		if have[name] && r.host.capabilities[name] {
			list = append(list, "CAP_"+name)
		}
	}
	return list
}

func plain(capability string) string {
	return strings.TrimPrefix(strings.ToUpper(capability), "CAP_")
}

// confine hides what an ordinary container must not see or change.
func (r *Runtime) confine(o *oci.Spec) {
	o.Linux.MaskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	o.Linux.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	if r.host.seccomp {
		// Last, since the profile allows what the capabilities allow.
		o.Linux.Seccomp = seccomp.DefaultProfile(o)
	}
}

// privilege gives a container all devices, and its mounts of the kernel's file systems to write to.
func privilege(ctx context.Context, o *oci.Spec) error {
	for i, m := range o.Mounts {
		if m.Type == "sysfs" || m.Type == "cgroup" {
			o.Mounts[i].Options = slices.DeleteFunc(slices.Clone(m.Options), func(s string) bool { return s == "ro" })
		}
	}
	return oci.ApplyOpts(ctx, nil, nil, o, oci.WithHostDevices, oci.WithAllDevicesAllowed)
}

func addDevices(ctx context.Context, o *oci.Spec, devices runtime.DeviceOptions) error {
	for _, d := range devices.Devices {
		permissions := d.Permissions
		if permissions == "" {
			permissions = "rwm"
		}
		target := d.ContainerPath
		if target == "" {
			target = d.HostPath
		}
		if err := oci.ApplyOpts(ctx, nil, nil, o, oci.WithDevices(d.HostPath, target, permissions)); err != nil {
			return fmt.Errorf("device %s: %w", d.HostPath, err)
		}
	}
	return nil
}

// addCDI applies what the specifications of CDI devices say.
func (r *Runtime) addCDI(o *oci.Spec, names []string) error {
	if len(names) == 0 {
		return nil
	}
	// Read anew each time: device plugins write specifications while we run, and few containers ask.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(r.cfg.CDIDirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("CDI: %w", err)
	}
	if _, err := cache.InjectDevices(o, names...); err != nil {
		return fmt.Errorf("CDI: %w", err)
	}
	return nil
}

// mounts lists the kernel's file systems, the pod's files, then volumes. A volume at the place of one of ours
// replaces it.
func (r *Runtime) mounts(c *container, spec runtime.ContainerSpec, s *sandbox) []specs.Mount {
	list := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
	}
	shm := filepath.Join(r.runDir(c.podUID), "shm")
	if s.HostIPC {
		shm = "/dev/shm"
	}
	ours := []runtime.Mount{{HostPath: shm, ContainerPath: "/dev/shm"}}
	etc := filepath.Join(r.stateDir(c.podUID), "etc")
	for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
		ours = append(ours, runtime.Mount{
			HostPath: filepath.Join(etc, name), ContainerPath: "/etc/" + name, ReadOnly: spec.Security.ReadOnlyRootFS,
		})
	}
	if c.terminationPath != "" {
		ours = append(ours, runtime.Mount{HostPath: c.terminationFile(), ContainerPath: c.terminationPath})
	}
	volumes := slices.Concat(spec.Mounts, spec.Devices.Mounts)
	replaced := map[string]bool{}
	for _, m := range volumes {
		replaced[filepath.Clean(m.ContainerPath)] = true
	}
	list = slices.DeleteFunc(list, func(m specs.Mount) bool { return replaced[m.Destination] })
	for _, m := range ours {
		if !replaced[filepath.Clean(m.ContainerPath)] {
			list = append(list, bind(m))
		}
	}
	// A volume below another one's place has to come after it.
	sort.SliceStable(volumes, func(i, j int) bool {
		return strings.Count(filepath.Clean(volumes[i].ContainerPath), "/") < strings.Count(filepath.Clean(volumes[j].ContainerPath), "/")
	})
	for _, m := range volumes {
		list = append(list, bind(m))
	}
	return list
}

func bind(m runtime.Mount) specs.Mount {
	propagation := "rprivate"
	if m.Propagation == "rslave" || m.Propagation == "rshared" {
		propagation = m.Propagation
	}
	options := []string{"rbind", propagation}
	if m.ReadOnly {
		options = append(options, "ro")
	} else {
		options = append(options, "rw")
	}
	// A link on the node is followed here: runc would refuse a source that it can't open as it is.
	source := m.HostPath
	if real, err := filepath.EvalSymlinks(source); err == nil {
		source = real
	}
	return specs.Mount{Destination: m.ContainerPath, Type: "bind", Source: source, Options: options}
}
