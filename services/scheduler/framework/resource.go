package framework

import (
	"errors"
	"fmt"
	"maps"

	"trireme.dev/client/quantity"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// The names of the resources that every node has. All others are extended resources, such as nvidia.com/gpu.
const (
	ResourceCPU              = "cpu"
	ResourceMemory           = "memory"
	ResourceEphemeralStorage = "ephemeral-storage"
	ResourcePods             = "pods"
)

// What a container without a request counts as when nodes are scored (never when they are filtered), so that
// containers that ask for nothing still spread.
const (
	DefaultMilliCPURequest int64 = 100
	DefaultMemoryRequest   int64 = 200 << 20
)

// Resource is an amount of everything that is counted.
type Resource struct {
	MilliCPU         int64
	Memory           int64
	EphemeralStorage int64
	// AllowedPods is how many pods a node takes; 0 in what a pod asks for.
	AllowedPods int64
	// Scalar holds extended resources and huge pages by name.
	Scalar map[string]int64
}

// Get returns the amount by resource name, in thousandths for cpu.
func (r *Resource) Get(name string) int64 {
	switch name {
	case ResourceCPU:
		return r.MilliCPU
	case ResourceMemory:
		return r.Memory
	case ResourceEphemeralStorage:
		return r.EphemeralStorage
	case ResourcePods:
		return r.AllowedPods
	}
	return r.Scalar[name]
}

// Add adds o.
func (r *Resource) Add(o *Resource) { r.add(o, 1) }

// Sub takes o away.
func (r *Resource) Sub(o *Resource) { r.add(o, -1) }

func (r *Resource) add(o *Resource, sign int64) {
	r.MilliCPU += sign * o.MilliCPU
	r.Memory += sign * o.Memory
	r.EphemeralStorage += sign * o.EphemeralStorage
	for name, v := range o.Scalar {
		if r.Scalar == nil {
			r.Scalar = make(map[string]int64, len(o.Scalar))
		}
		// An amount that falls back to zero is dropped, so that adding and taking away leaves no trace.
		if sum := r.Scalar[name] + sign*v; sum != 0 {
			r.Scalar[name] = sum
		} else {
			delete(r.Scalar, name)
		}
	}
}

// Min lowers each amount to that of o.
func (r *Resource) Min(o *Resource) {
	r.MilliCPU = min(r.MilliCPU, o.MilliCPU)
	r.Memory = min(r.Memory, o.Memory)
	r.EphemeralStorage = min(r.EphemeralStorage, o.EphemeralStorage)
	for name, v := range r.Scalar {
		if v = min(v, o.Scalar[name]); v > 0 {
			r.Scalar[name] = v
		} else {
			delete(r.Scalar, name)
		}
	}
}

// Times is how often what a pod asks for fits into r, as far as there is room for pods.
func (r *Resource) Times(want *Resource) int64 {
	n := r.AllowedPods
	fit := func(have, want int64) {
		if want > 0 {
			n = min(n, have/want)
		}
	}
	fit(r.MilliCPU, want.MilliCPU)
	fit(r.Memory, want.Memory)
	fit(r.EphemeralStorage, want.EphemeralStorage)
	for name, v := range want.Scalar {
		fit(r.Scalar[name], v)
	}
	return max(n, 0)
}

// Max raises each amount to that of o.
func (r *Resource) Max(o *Resource) {
	r.MilliCPU = max(r.MilliCPU, o.MilliCPU)
	r.Memory = max(r.Memory, o.Memory)
	r.EphemeralStorage = max(r.EphemeralStorage, o.EphemeralStorage)
	for name, v := range o.Scalar {
		if v > r.Scalar[name] {
			if r.Scalar == nil {
				r.Scalar = make(map[string]int64, len(o.Scalar))
			}
			r.Scalar[name] = v
		}
	}
}

// Clone returns a copy.
func (r *Resource) Clone() Resource {
	c := *r
	c.Scalar = maps.Clone(r.Scalar)
	return c
}

func (r *Resource) set(name string, q quantity.Quantity) {
	switch name {
	case ResourceCPU:
		r.MilliCPU = q.MilliValue()
	case ResourceMemory:
		r.Memory = q.Value()
	case ResourceEphemeralStorage:
		r.EphemeralStorage = q.Value()
	case ResourcePods:
		r.AllowedPods = q.Value()
	default:
		if v := q.Value(); v != 0 {
			if r.Scalar == nil {
				r.Scalar = make(map[string]int64)
			}
			r.Scalar[name] = v
		}
	}
}

// ParseResource reads a list of quantities. It returns what it could read even if it returns an error.
func ParseResource(list map[string]string) (Resource, error) {
	var (
		r    Resource
		errs []error
	)
	for name, s := range list {
		q, err := quantity.Parse(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("resource %s: %w", name, err))
			continue
		}
		r.set(name, q)
	}
	return r, errors.Join(errs...)
}

// containerRequest is what one container asks for: its limit of a resource where it has no request of it.
func containerRequest(req *corev1.ResourceRequirements) (Resource, error) {
	limits, requests := req.GetLimits(), req.GetRequests()
	if len(limits) == 0 {
		return ParseResource(requests)
	}
	all := maps.Clone(limits)
	maps.Copy(all, requests)
	return ParseResource(all)
}

// podRequests computes what a pod asks for and what it counts as for scoring. Init containers run one after the other
// beside the sidecars started before them, so a pod needs the largest of these stages, or what its containers need
// together with all sidecars, whichever is more.
func podRequests(spec *corev1.PodSpec) (request, scored Resource, err error) {
	var errs []error
	parse := func(c *corev1.Container) (r, nonZero Resource) {
		r, err := containerRequest(c.GetResources())
		if err != nil {
			errs = append(errs, fmt.Errorf("container %s: %w", c.GetName(), err))
		}
		nonZero = Resource{MilliCPU: r.MilliCPU, Memory: r.Memory}
		if !asksFor(c, ResourceCPU) {
			nonZero.MilliCPU = DefaultMilliCPURequest
		}
		if !asksFor(c, ResourceMemory) {
			nonZero.Memory = DefaultMemoryRequest
		}
		return r, nonZero
	}

	for _, c := range spec.GetContainers() {
		r, nz := parse(c)
		request.Add(&r)
		scored.Add(&nz)
	}
	var sidecars, sidecarsScored, stage, stageScored Resource
	for _, c := range spec.GetInitContainers() {
		r, nz := parse(c)
		if c.GetRestartPolicy() == "Always" {
			request.Add(&r)
			scored.Add(&nz)
			sidecars.Add(&r)
			sidecarsScored.Add(&nz)
			r, nz = sidecars.Clone(), sidecarsScored.Clone()
		} else {
			r.Add(&sidecars)
			nz.Add(&sidecarsScored)
		}
		stage.Max(&r)
		stageScored.Max(&nz)
	}
	request.Max(&stage)
	scored.Max(&stageScored)

	if whole := spec.GetResources(); whole != nil {
		r, err := containerRequest(whole)
		if err != nil {
			errs = append(errs, err)
		}
		// The pod's own figure replaces the sum over its containers.
		if r.MilliCPU > 0 {
			request.MilliCPU, scored.MilliCPU = r.MilliCPU, r.MilliCPU
		}
		if r.Memory > 0 {
			request.Memory, scored.Memory = r.Memory, r.Memory
		}
	}
	if overhead := spec.GetOverhead(); len(overhead) > 0 {
		r, err := ParseResource(overhead)
		if err != nil {
			errs = append(errs, fmt.Errorf("overhead: %w", err))
		}
		request.Add(&r)
		scored.Add(&r)
	}
	request.AllowedPods, scored.AllowedPods = 0, 0
	return request, scored, errors.Join(errs...)
}

func asksFor(c *corev1.Container, resource string) bool {
	if _, ok := c.GetResources().GetRequests()[resource]; ok {
		return true
	}
	_, ok := c.GetResources().GetLimits()[resource]
	return ok
}
