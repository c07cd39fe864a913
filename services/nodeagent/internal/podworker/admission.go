package podworker

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/quantity"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/containerspec"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// Devices gives containers the devices of plugins. The device manager is one; None is for a node without any.
type Devices interface {
	// Admit allocates devices for all containers of a pod. A *Rejection is for good; ErrWaiting asks to try again.
	Admit(ctx context.Context, pod *corev1.Pod) error
	// Options are what a container gets.
	Options(podUID, container string) runtime.DeviceOptions
	// PreStart prepares a container's devices before each start.
	PreStart(ctx context.Context, podUID, container string) error
	// Release gives a pod's devices back.
	Release(podUID string)
}

// ErrWaiting says that a device plugin has not come back yet.
var ErrWaiting = errors.New("waiting for a device plugin")

// Rejection says that a pod can never run on this node.
type Rejection struct{ Reason, Message string }

// Error is the message.
func (r *Rejection) Error() string { return r.Message }

// None are the devices of a node that has none.
type None struct{}

// Admit rejects pods that ask for devices.
func (None) Admit(_ context.Context, pod *corev1.Pod) error {
	for name, q := range containerspec.Requests(pod) {
		if isExtended(name) && q.Sign() > 0 {
			return &Rejection{"UnexpectedAdmissionError",
				"Pod was rejected: Allocate failed due to cannot allocate unregistered device " + name + ", which is unexpected"}
		}
	}
	return nil
}

// Options are empty.
func (None) Options(string, string) runtime.DeviceOptions { return runtime.DeviceOptions{} }

// PreStart does nothing.
func (None) PreStart(context.Context, string, string) error { return nil }

// Release does nothing.
func (None) Release(string) {}

// isExtended reports whether a resource has a domain of its own: nvidia.com/gpu.
func isExtended(name string) bool {
	for i := range len(name) {
		if name[i] == '/' {
			return name[:i] != "kubernetes.io"
		}
	}
	return false
}

// ledger adds up what admitted pods ask of the node.
type ledger struct {
	mu   sync.Mutex
	pods map[string]map[string]quantity.Quantity
}

// admit enters a pod, if it fits beside those entered. One that is entered already, or runs already, fits.
func (l *ledger) admit(pod *corev1.Pod, runs bool, allocatable map[string]quantity.Quantity) error {
	uid := pod.GetMetadata().GetUid()
	requests := containerspec.Requests(pod)
	requests["pods"] = quantity.New(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.pods[uid]; ok {
		return nil
	}
	names := make([]string, 0, len(requests))
	for n := range requests {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		capacity, known := allocatable[n]
		if runs || !known {
			continue
		}
		used := quantity.New(0)
		for _, other := range l.pods {
			used = used.Add(other[n])
		}
		if want := requests[n]; want.Sign() > 0 && used.Add(want).Cmp(capacity) > 0 {
			number := quantity.Quantity.Value
			if n == "cpu" {
				number = quantity.Quantity.MilliValue
			}
			return &Rejection{"OutOf" + n, fmt.Sprintf(
				"Pod was rejected: Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				n, number(want), number(used), number(capacity))}
		}
	}
	if l.pods == nil {
		l.pods = map[string]map[string]quantity.Quantity{}
	}
	l.pods[uid] = requests
	return nil
}

func (l *ledger) release(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, uid)
}

// podOf makes what is known of a pod from what the runtime remembers of it.
func podOf(p *runtime.Pod) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Uid: p.UID, DeletionGracePeriodSeconds: proto.Int64(0)},
		Spec:     &corev1.PodSpec{},
		Status:   &corev1.PodStatus{},
	}
}
