package apiserver

import (
	"log/slog"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/apiserver/internal/gateway"
)

// Program is the gateway as a process: its own binary and `trireme apiserver`.
func Program() daemon.Program {
	var cfg Config
	return daemon.Program{
		Name:       "apiserver",
		Short:      "Serve every kind and keep their objects in etcd",
		TraceRoots: gateway.TraceRoot,
		AddFlags:   cfg.AddFlags,
		Build:      func(logger *slog.Logger) (daemon.Service, error) { return New(cfg, logger) },
	}
}
