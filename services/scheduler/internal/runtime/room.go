package runtime

import "trireme.dev/services/scheduler/framework"

// Evictor implements framework.Handle.
func (f *Framework) Evictor() framework.Evictor { return f.deps.Evictor }

// NominatedSince implements framework.Handle.
func (f *Framework) NominatedSince(version uint64, nodes []string) (names []string, now uint64, ok bool) {
	return f.deps.Nominator.ChangedSince(version, nodes)
}
