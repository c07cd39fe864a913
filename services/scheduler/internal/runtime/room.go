package runtime

import "trireme.dev/services/scheduler/framework"

// Evictor implements framework.Handle.
func (f *Framework) Evictor() framework.Evictor { return f.deps.Evictor }

// EachNominated implements framework.Handle.
func (f *Framework) EachNominated(fn func(node string, pods []*framework.PodInfo)) {
	f.deps.Nominator.Each(fn)
}
