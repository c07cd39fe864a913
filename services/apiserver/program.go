package apiserver

import (
	"context"
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
		Build: func(logger *slog.Logger) (daemon.Service, error) {
			s, err := New(cfg, logger)
			return process{s}, err
		},
	}
}

// process is a Server that has its process to itself.
type process struct{ *Server }

// Run implements daemon.Service.
func (p process) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return daemon.Run(ctx,
		daemon.Task{Name: "gateway", Run: func(ctx context.Context) error { defer cancel(); return p.Server.Run(ctx) }},
		daemon.Task{Name: "collector", Run: collect},
	)
}
