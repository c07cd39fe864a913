package apiserver

import "trireme.dev/services/apiserver/internal/storage/etcd/embedded"

// Restored says what Restore did.
type Restored = embedded.Restored

// Restore makes the folder of an embedded etcd from a file that MaintenanceService.Snapshot has given. No gateway may run
// on it. Its revision lies far beyond all that was seen before, so that every client lists again. What the folder held is
// kept beside it.
func Restore(file, dir string) (Restored, error) { return embedded.Restore(file, dir) }
