package scheduler

import (
	"log/slog"

	"trireme.dev/kit/daemon"
)

// Program is the scheduler as a process: its own binary and `trireme scheduler`.
func Program() daemon.Program {
	cfg := NewConfig()
	return daemon.Program{
		Name:     "scheduler",
		Short:    "Put pods on nodes",
		AddFlags: cfg.AddFlags,
		Build:    func(logger *slog.Logger) (daemon.Service, error) { return New(cfg, logger) },
	}
}
