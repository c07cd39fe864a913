package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"trireme.dev/client/apierr"
	"trireme.dev/client/quantity"
	"trireme.dev/client/tracing"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

const (
	// allocateTimeout bounds a plugin's Allocate. The kubelet has none, and a hung plugin hangs it.
	allocateTimeout = time.Minute
	// unexpected is the reason of a pod that was rejected here, as in the kubelet.
	unexpected = "UnexpectedAdmissionError"
)

// IsExtended tells whether a resource is one that device plugins may offer: it has a domain, and not Kubernetes' own.
func IsExtended(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(name, "requests.")
}

// Admit gives a pod's containers the devices that their limits ask for: all of them, or none and an error. Asking
// again for a pod that holds its devices changes nothing, whatever has become of the devices or their plugin since.
// The error wraps ErrWaiting, or is an *AdmissionError, or says that the checkpoint could not be written.
func (m *Manager) Admit(ctx context.Context, pod *corev1.Pod) error {
	m.admitting.Lock()
	defer m.admitting.Unlock()

	uid := pod.GetMetadata().GetUid()
	m.mu.Lock()
	held := m.allocations[uid]
	m.mu.Unlock()

	granted := map[string]map[string]*allocation{}
	// Devices of init containers that have ended serve the containers that follow.
	reusable := map[string]map[string]bool{}
	for _, c := range containersOf(pod) {
		for _, resource := range slices.Sorted(maps.Keys(c.spec.GetResources().GetLimits())) {
			if !IsExtended(resource) {
				continue
			}
			wanted, err := count(c.spec, resource)
			if err != nil {
				return rejected(err)
			}
			if wanted == 0 {
				continue
			}
			a := held[c.spec.GetName()][resource]
			if a == nil {
				if a, err = m.allocate(ctx, c.spec.GetName(), resource, wanted, reusable[resource], taken(granted, resource)); err != nil {
					return admissionError(err)
				}
			} else if len(a.IDs) != wanted {
				return rejected(fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d",
					uid, c.spec.GetName(), resource, len(a.IDs), wanted))
			}
			if granted[c.spec.GetName()] == nil {
				granted[c.spec.GetName()] = map[string]*allocation{}
			}
			granted[c.spec.GetName()][resource] = a
			if reusable[resource] == nil {
				reusable[resource] = map[string]bool{}
			}
			for _, id := range a.IDs {
				reusable[resource][id] = c.reusable
			}
		}
		if _, err := merge(granted[c.spec.GetName()]); err != nil {
			return rejected(fmt.Errorf("container %q: %w", c.spec.GetName(), err))
		}
	}
	if len(granted) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.allocations[uid] = granted
	_, span := tracing.Start(ctx, "WriteCheckpoint")
	err := m.save()
	tracing.Fail(span, err)
	span.End()
	if err != nil {
		delete(m.allocations, uid)
		if held != nil {
			m.allocations[uid] = held
		}
		return err
	}
	return nil
}

// container is one container of a pod, in the order in which they get devices.
type container struct {
	spec *corev1.Container
	// reusable says that the container ends before those that follow start.
	reusable bool
}

func containersOf(pod *corev1.Pod) []container {
	var all []container
	for _, c := range pod.GetSpec().GetInitContainers() {
		all = append(all, container{c, c.GetRestartPolicy() != "Always"})
	}
	for _, c := range pod.GetSpec().GetContainers() {
		all = append(all, container{c, false})
	}
	return all
}

func count(c *corev1.Container, resource string) (int, error) {
	q, err := quantity.Parse(c.GetResources().GetLimits()[resource])
	if err != nil {
		return 0, fmt.Errorf("container %q: %s: %w", c.GetName(), resource, err)
	}
	return int(q.Value()), nil
}

// taken are the devices that earlier containers of the pod were given in this admission.
func taken(granted map[string]map[string]*allocation, resource string) map[string]bool {
	ids := map[string]bool{}
	for _, resources := range granted {
		if a := resources[resource]; a != nil {
			for _, id := range a.IDs {
				ids[id] = true
			}
		}
	}
	return ids
}

// rejected is an error that no other attempt will cure.
func rejected(err error) error {
	return &AdmissionError{Reason: unexpected, Message: fmt.Sprintf("Pod was rejected: Allocate failed due to %v, which is unexpected", err)}
}

// admissionError leaves waiting and cancellation as they are: those are not the pod's fault.
func admissionError(err error) error {
	if errors.Is(err, ErrWaiting) || errors.Is(err, context.Canceled) {
		return err
	}
	return rejected(err)
}

// allocate chooses devices and asks the plugin what a container needs in order to use them. mine are devices that
// other containers of the pod got; of those only the reusable ones may be given again.
func (m *Manager) allocate(ctx context.Context, container, resource string, wanted int, reusable, mine map[string]bool) (*allocation, error) {
	ctx, span := tracing.Start(ctx, "Allocate")
	defer span.End()
	begin := time.Now()
	a, err := m.obtain(ctx, resource, wanted, reusable, mine)
	m.metrics.allocated(ctx, resource, begin)
	if span.IsRecording() {
		span.SetAttributes(tracing.KeyContainer.String(container), tracing.KeyResource.String(resource), tracing.KeyCount.Int(wanted))
		if a != nil {
			span.SetAttributes(tracing.KeyDevices.StringSlice(a.IDs))
		}
		tracing.Fail(span, err)
	}
	return a, err
}

// obtain is allocate without what is said of it.
func (m *Manager) obtain(ctx context.Context, resource string, wanted int, reusable, mine map[string]bool) (*allocation, error) {
	m.mu.Lock()
	p := m.plugins[resource]
	if err := m.usable(resource, p); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	healthy, free := 0, map[string]bool{}
	inUse := m.inUse(resource)
	for id, d := range p.devices {
		if !d.healthy {
			continue
		}
		healthy++
		free[id] = !inUse[id] && !mine[id] || reusable[id]
	}
	client, options := p.client, p.options
	m.mu.Unlock()
	maps.DeleteFunc(free, func(_ string, ok bool) bool { return !ok })

	if healthy == 0 {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", resource)
	}
	if len(free) < wanted {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", resource, wanted, len(free))
	}
	var preferred []string
	if options.GetGetPreferredAllocationAvailable() && len(free) > wanted {
		must := slices.Sorted(keysOf(reusable, free))
		preferred = askPreferred(ctx, client, slices.Sorted(maps.Keys(free)), must[:min(len(must), wanted)], wanted)
	}
	ids := choose(free, reusable, preferred, wanted)

	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	out, err := client.Allocate(ctx, &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	if err != nil {
		err = apierr.FromStatus(err)
		if apierr.IsUnavailable(err) {
			return nil, fmt.Errorf("%w: %s: %w", ErrWaiting, resource, err)
		}
		return nil, err
	}
	if len(out.GetContainerResponses()) != 1 {
		return nil, fmt.Errorf("plugin of %s answered for %d containers, asked for one", resource, len(out.GetContainerResponses()))
	}
	response, err := proto.Marshal(out.GetContainerResponses()[0])
	if err != nil {
		return nil, fmt.Errorf("plugin of %s: %w", resource, err)
	}
	return &allocation{IDs: ids, Response: response, PreStart: options.GetPreStartRequired()}, nil
}

// usable says why no devices of a resource can be given now, if so; the caller holds mu.
func (m *Manager) usable(resource string, p *plugin) error {
	switch {
	case p == nil && time.Since(m.started) < startGrace:
		return fmt.Errorf("%w: none has registered for %s yet", ErrWaiting, resource)
	case p == nil:
		return fmt.Errorf("cannot allocate unregistered device %s", resource)
	case p.client == nil || !p.stopped.IsZero():
		return fmt.Errorf("%w: that of %s is on its way back", ErrWaiting, resource)
	case len(p.devices) == 0:
		return fmt.Errorf("%w: that of %s has not listed its devices yet", ErrWaiting, resource)
	}
	return nil
}

// inUse are the devices of a resource that pods hold; the caller holds mu.
func (m *Manager) inUse(resource string) map[string]bool {
	ids := map[string]bool{}
	for _, containers := range m.allocations {
		for _, resources := range containers {
			if a := resources[resource]; a != nil {
				for _, id := range a.IDs {
					ids[id] = true
				}
			}
		}
	}
	return ids
}

// keysOf yields the true keys of a that are in b too.
func keysOf(a, b map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for id, ok := range a {
			if ok && b[id] && !yield(id) {
				return
			}
		}
	}
}

// askPreferred asks for the plugin's advice. No advice is no error: it is only advice.
func askPreferred(ctx context.Context, client v1beta1.DevicePluginClient, available, must []string, size int) []string {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	out, err := client.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{
		ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(size),
		}},
	})
	if err != nil || len(out.GetContainerResponses()) != 1 {
		return nil
	}
	return out.GetContainerResponses()[0].GetDeviceIDs()
}

// choose takes wanted devices out of free: reusable ones first, then those preferred, then the rest, each by ID.
func choose(free, reusable map[string]bool, preferred []string, wanted int) []string {
	ids := slices.Sorted(maps.Keys(free))
	rank := func(id string) int {
		switch {
		case reusable[id]:
			return 0
		case slices.Contains(preferred, id):
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(ids, func(a, b string) int { return rank(a) - rank(b) })
	ids = ids[:wanted]
	slices.Sort(ids)
	return ids
}
