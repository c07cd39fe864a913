package apiserver

import (
	"log/slog"
	"os"
	"runtime/debug"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/apiserver/internal/gateway"
)

// gcPercent makes the collector run before the heap has grown by half. Most of it is the watch cache, which stays: Go's
// own measure would hold as much again in reserve. GOGC replaces it.
const gcPercent = 50

// Program is the gateway as a process: its own binary and `trireme apiserver`.
func Program() daemon.Program {
	var cfg Config
	return daemon.Program{
		Name:       "apiserver",
		Short:      "Serve every kind and keep their objects in etcd",
		TraceRoots: gateway.TraceRoot,
		AddFlags:   cfg.AddFlags,
		Build: func(logger *slog.Logger) (daemon.Service, error) {
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			return New(cfg, logger)
		},
	}
}
