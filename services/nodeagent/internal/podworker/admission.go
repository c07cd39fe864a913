package podworker

import (
	"fmt"
	"sort"
	"sync"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/quantity"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/containerspec"
	"trireme.dev/services/nodeagent/internal/devices"
	"trireme.dev/services/nodeagent/internal/runtime"
)

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
		// Where no device of a resource is known, its plugin may be on its way: the device manager decides.
		if runs || !known || (devices.IsExtended(n) && capacity.IsZero()) {
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
			return &devices.AdmissionError{Reason: "OutOf" + n, Message: fmt.Sprintf(
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
