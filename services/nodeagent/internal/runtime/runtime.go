// Package runtime is the seam between the node agent's decisions and whatever runs the containers.
//
// It holds the interface and the plain types that cross it, and no implementation: containerd is one, simulated
// another, and runtimetest is the suite that both pass. A runtime knows nothing of pods' API objects, restart
// policies or back-off; it does what it is told and reports what is so. Everything that the agent needs to find its
// pods again after a restart is kept by the runtime itself (labels), never by the agent.
package runtime

import (
	"context"
	"errors"
	"io"
	"time"
)

// NetworkSpan is the name of the span in which a runtime gives a sandbox its network, under the span of CreateSandbox's
// context.
const NetworkSpan = "SetUpNetwork"

// ErrNotFound is wrapped by errors about a sandbox, container or image that does not exist.
var ErrNotFound = errors.New("not found")

// Runtime runs sandboxes and containers on one node. All methods are safe for concurrent use; calls about one pod are
// made by one goroutine at a time, but for Exec and reads. Every method is idempotent where its comment says so, since
// the agent repeats what it did not see confirmed.
type Runtime interface {
	// Info names the runtime and says whether it can start pods now.
	Info(ctx context.Context) (Info, error)

	// SetPodCIDR tells the runtime from which range pods get addresses. Until it has been called once, CreateSandbox
	// of a pod that needs an address fails with ErrNetworkNotReady. Repeating it with the same range does nothing.
	SetPodCIDR(ctx context.Context, cidr string) error

	// Pods reports every pod that the runtime knows, running or not, leftovers of earlier agents included.
	Pods(ctx context.Context) ([]*Pod, error)
	// Pod reports one pod. A pod of which nothing exists is ErrNotFound.
	Pod(ctx context.Context, uid string) (*Pod, error)
	// Events delivers hints that a pod's containers changed, until ctx ends; then the channel is closed. Hints may be
	// lost or doubled, never invented.
	Events(ctx context.Context) (<-chan Event, error)

	// CreateSandbox makes the namespaces, cgroup and network that a pod's containers share. If the pod has one
	// already it is returned as it is.
	CreateSandbox(ctx context.Context, spec SandboxSpec) (*Sandbox, error)
	// RemoveSandbox removes the sandbox and whatever belongs to the pod: containers (killed if need be), namespaces,
	// mounts, network, rules, cgroup. A pod of which nothing exists is success.
	RemoveSandbox(ctx context.Context, podUID string) error

	// CreateContainer prepares a container in a pod's sandbox without starting it. The image must be present.
	CreateContainer(ctx context.Context, spec ContainerSpec) (id string, err error)
	// StartContainer starts a created container. An error that is the workload's own fault (no such executable)
	// leaves the container exited with StartError set.
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the stop signal, waits up to grace, then kills, and returns once the container has exited.
	// Grace 0 kills at once. A container that is not running or unknown is success.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	// RemoveContainer removes a container that does not run, with its writable layer. An unknown one is success.
	RemoveContainer(ctx context.Context, id string) error

	// Exec runs a command in a running container and returns its exit code. Errors are about running it at all.
	Exec(ctx context.Context, id string, spec ExecSpec) (exitCode int, err error)

	// Images is the node's image store.
	Images() Images
}

// ErrNetworkNotReady is returned by CreateSandbox until SetPodCIDR has been called.
var ErrNetworkNotReady = errors.New("network is not ready: the node has no pod CIDR yet")

// Images is a node's image store.
type Images interface {
	// Get finds a present image by reference; ErrNotFound if absent. Short references (busybox) mean
	// docker.io/library/busybox:latest, as everywhere.
	Get(ctx context.Context, ref string) (*Image, error)
	// Pull fetches an image from its registry.
	Pull(ctx context.Context, ref string) (*Image, error)
	// Import reads an OCI or Docker archive (tar) and returns the references that it held.
	Import(ctx context.Context, r io.Reader) ([]string, error)
	// List lists present images.
	List(ctx context.Context) ([]*Image, error)
}

// Image is a present image.
type Image struct {
	// ID is the digest of the image's configuration or manifest: sha256:...
	ID string
	// Names are references by which it is known.
	Names []string
	// SizeBytes on disk, as far as the store knows.
	SizeBytes int64
}

// Info describes a runtime.
type Info struct {
	// Name and Version as nodes report them: containerd 2.4.2, simulated 1.
	Name, Version string
	// NetworkReady says whether pods that need an address can start.
	NetworkReady bool
}

// Event is a hint that something about a pod changed.
type Event struct {
	// PodUID of the pod.
	PodUID string
}

// Pod is what a runtime knows of one pod.
type Pod struct {
	// UID, Namespace and Name as given in the SandboxSpec.
	UID, Namespace, Name string
	// Sandbox is nil where only leftovers of containers exist.
	Sandbox *Sandbox
	// Containers in order of creation, exited ones included until they are removed.
	Containers []*Container
}

// Sandbox is what a pod's containers share.
type Sandbox struct {
	// Ready is false when the sandbox must be made anew (a namespace or the network is gone).
	Ready bool
	// HostNetwork says that the pod lives in the node's network namespace.
	HostNetwork bool
	// IPs of the pod; empty with HostNetwork.
	IPs []string
	// CreatedAt is when it was made.
	CreatedAt time.Time
}

// ContainerState is the life of a container.
//
//	Created ──StartContainer──▶ Running ──▶ Exited
//	   └──────── start fails ────────────────▲
type ContainerState int

// The states of a container. Unknown is a container whose state the runtime cannot tell.
const (
	StateUnknown ContainerState = iota
	StateCreated
	StateRunning
	StateExited
)

// Container is what a runtime knows of one container.
type Container struct {
	// ID is the runtime's own.
	ID string
	// Name, Attempt and SpecHash as given in the ContainerSpec.
	Name     string
	Attempt  int
	SpecHash string
	// Init and Ephemeral say what kind of container of its pod it is.
	Init, Ephemeral bool
	// Image is the reference asked for, ImageID what it resolved to.
	Image, ImageID string
	// State of the container.
	State ContainerState
	// CreatedAt, StartedAt and FinishedAt; zero where not yet.
	CreatedAt, StartedAt, FinishedAt time.Time
	// ExitCode once exited (128+signal for a signal), and Signal if one ended it.
	ExitCode int
	// OOMKilled says that the kernel's memory killer ended it.
	OOMKilled bool
	// StartError says why it could not be started.
	StartError string
	// LogPath where its output goes.
	LogPath string
	// TerminationMessage that it left.
	TerminationMessage string
}

// SandboxSpec describes a sandbox.
type SandboxSpec struct {
	// PodUID, Namespace and Name identify the pod.
	PodUID, Namespace, Name string
	// Hostname seen inside.
	Hostname string
	// HostNetwork, HostPID, HostIPC share the node's namespaces.
	HostNetwork, HostPID, HostIPC bool
	// HostPorts to forward to the pod.
	HostPorts []HostPort
	// Cgroup of the pod.
	Cgroup PodCgroup
	// Annotations and Labels of the pod, for plugins below.
	Labels, Annotations map[string]string
}

// HostPort forwards a port of the node to the pod.
type HostPort struct {
	// HostIP limits the addresses of the node; empty for all.
	HostIP string
	// HostPort and ContainerPort, 1 to 65535.
	HostPort, ContainerPort int32
	// Protocol is TCP, UDP or SCTP.
	Protocol string
}

// QOSClass as Kubernetes names it.
type QOSClass string

// The three classes.
const (
	Guaranteed QOSClass = "Guaranteed"
	Burstable  QOSClass = "Burstable"
	BestEffort QOSClass = "BestEffort"
)

// PodCgroup describes the cgroup that holds a pod's containers.
type PodCgroup struct {
	// QOS decides the parent: kubepods, kubepods/burstable, kubepods/besteffort.
	QOS QOSClass
	// Resources of the pod as a whole; zero values mean no limit.
	Resources Resources
}

// Resources are cgroup settings in neutral units; zero means unset.
type Resources struct {
	// CPUShares is the v1 weight, 2 to 262144; v2 weights are derived.
	CPUShares uint64
	// CPUQuotaMicros per 100 ms period.
	CPUQuotaMicros int64
	// MemoryLimitBytes.
	MemoryLimitBytes int64
	// PidsLimit of processes.
	PidsLimit int64
	// OOMScoreAdj of the container's processes.
	OOMScoreAdj int
}

// ContainerSpec describes a container.
type ContainerSpec struct {
	// PodUID of the sandbox.
	PodUID string
	// Name within the pod, Attempt from 0, SpecHash of what it was made from.
	Name     string
	Attempt  int
	SpecHash string
	// Init and Ephemeral say what kind of container of its pod it is.
	Init, Ephemeral bool
	// Image reference; must be present.
	Image string
	// Command replaces the image's entrypoint and Args its arguments, where not empty.
	Command, Args []string
	// WorkingDir replaces the image's, where not empty.
	WorkingDir string
	// Env as NAME=value, after the image's own.
	Env []string
	// Mounts of volumes and files.
	Mounts []Mount
	// Devices from device plugins.
	Devices DeviceOptions
	// Resources of the container.
	Resources Resources
	// QOS of the pod.
	QOS QOSClass
	// Security of the container's processes.
	Security Security
	// TTY gives the container a terminal. Stdin keeps its standard input open; StdinOnce closes it with the first
	// client that leaves.
	TTY, Stdin, StdinOnce bool
	// LogPath is the file that receives the output in CRI format; its folder exists.
	LogPath string
	// TerminationMessagePath inside the container, read when it exits.
	TerminationMessagePath string
	// StopSignal replaces the image's: SIGTERM.
	StopSignal string
}

// Security of a container's processes; nil pointers leave the image's choice.
type Security struct {
	RunAsUser, RunAsGroup *int64
	Groups                []int64
	Privileged            bool
	ReadOnlyRootFS        bool
	NoNewPrivileges       bool
	// AddCapabilities and DropCapabilities without the CAP_ prefix; ALL means all.
	AddCapabilities, DropCapabilities []string
}

// Mount binds a host path into a container.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
	// Propagation is private (default), rslave or rshared.
	Propagation string
}

// Device is a device node given to a container.
type Device struct {
	HostPath, ContainerPath string
	// Permissions of the device cgroup: rwm.
	Permissions string
}

// DeviceOptions are what device plugins want a container to have.
type DeviceOptions struct {
	// Env as NAME=value, in order of name.
	Env []string
	// Mounts and Devices in order of container path.
	Mounts  []Mount
	Devices []Device
	// Annotations for the container.
	Annotations map[string]string
	// CDIDevices are fully qualified names: vendor.com/class=name.
	CDIDevices []string
}

// TerminalSize in characters.
type TerminalSize struct{ Width, Height uint16 }

// ExecSpec describes a command to run in a container.
type ExecSpec struct {
	Command []string
	// TTY merges standard error into standard output.
	TTY bool
	// Stdin may be nil. Stdout and Stderr may be nil to discard.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Resize delivers sizes of the terminal until closed; may be nil.
	Resize <-chan TerminalSize
}
