package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// preStartTimeout bounds PreStartContainer, as in the kubelet.
const preStartTimeout = v1beta1.KubeletPreStartContainerRPCTimeoutInSecs * time.Second

// Options are what a container gets for the devices that it holds. One that holds none gets nothing.
func (m *Manager) Options(podUID, container string) (runtime.DeviceOptions, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return merge(m.allocations[podUID][container])
}

// Health lists the devices that a container holds and how they are, by resource. A plugin that is gone leaves them unknown.
func (m *Manager) Health(podUID, container string) []*corev1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.allocations[podUID][container]
	var out []*corev1.ResourceStatus
	for _, resource := range slices.Sorted(maps.Keys(held)) {
		status := &corev1.ResourceStatus{Name: resource}
		p := m.plugins[resource]
		for _, id := range held[resource].IDs {
			health := "Unknown"
			if p != nil && p.stopped.IsZero() {
				health = "Unhealthy"
				if p.devices[id].healthy {
					health = "Healthy"
				}
			}
			status.Resources = append(status.Resources, &corev1.ResourceHealth{ResourceId: id, Health: health})
		}
		out = append(out, status)
	}
	return out
}

// PreStart lets plugins that want it prepare a container's devices. It is called before every start, restarts
// included. A plugin that is gone is ErrWaiting.
func (m *Manager) PreStart(ctx context.Context, podUID, container string) error {
	m.mu.Lock()
	held := m.allocations[podUID][container]
	m.mu.Unlock()
	for _, resource := range slices.Sorted(maps.Keys(held)) {
		if !held[resource].PreStart {
			continue
		}
		m.mu.Lock()
		p := m.plugins[resource]
		if err := m.usable(resource, p); err != nil {
			m.mu.Unlock()
			return err
		}
		client := p.client
		m.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, preStartTimeout)
		_, err := client.PreStartContainer(ctx, &v1beta1.PreStartContainerRequest{DevicesIds: held[resource].IDs})
		cancel()
		if err != nil {
			return fmt.Errorf("prepare %s of container %q: %w", resource, container, apierr.FromStatus(err))
		}
	}
	return nil
}

// merge makes one set of options of the answers of several plugins, in order of resource. Two that contradict each
// other are an error that names what about.
func merge(held map[string]*allocation) (runtime.DeviceOptions, error) {
	var out runtime.DeviceOptions
	env, nodes, mounts := map[string]string{}, map[string]runtime.Device{}, map[string]runtime.Mount{}
	for _, resource := range slices.Sorted(maps.Keys(held)) {
		var response v1beta1.ContainerAllocateResponse
		if err := proto.Unmarshal(held[resource].Response, &response); err != nil {
			return out, fmt.Errorf("answer of the plugin of %s: %w", resource, err)
		}
		for name, value := range response.GetEnvs() {
			if err := put(env, "variable", resource, name, value); err != nil {
				return out, err
			}
		}
		for _, d := range response.GetDevices() {
			node := runtime.Device{HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions()}
			if err := put(nodes, "device", resource, node.ContainerPath, node); err != nil {
				return out, err
			}
		}
		for _, v := range response.GetMounts() {
			mount := runtime.Mount{HostPath: v.GetHostPath(), ContainerPath: v.GetContainerPath(), ReadOnly: v.GetReadOnly()}
			if err := put(mounts, "mount", resource, mount.ContainerPath, mount); err != nil {
				return out, err
			}
		}
		for name, value := range response.GetAnnotations() {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			if err := put(out.Annotations, "annotation", resource, name, value); err != nil {
				return out, err
			}
		}
		for _, d := range response.GetCdiDevices() {
			if !slices.Contains(out.CDIDevices, d.GetName()) {
				out.CDIDevices = append(out.CDIDevices, d.GetName())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out.Env = append(out.Env, name+"="+env[name])
	}
	out.Devices = inOrder(nodes)
	out.Mounts = inOrder(mounts)
	return out, nil
}

// put adds an entry, or says that another resource has already said otherwise.
func put[V comparable](all map[string]V, what, resource, name string, value V) error {
	if before, ok := all[name]; ok && before != value {
		return fmt.Errorf("%s %s of %s contradicts that of another resource", what, name, resource)
	}
	all[name] = value
	return nil
}

// inOrder lists values by length and text of their keys: /dev/nvidia2 before /dev/nvidia10.
func inOrder[V any](all map[string]V) []V {
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	var out []V
	for _, k := range keys {
		out = append(out, all[k])
	}
	return out
}
