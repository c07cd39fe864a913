package controller

import (
	"log/slog"

	"trireme.dev/kit/daemon"
)

// Program is the controllers as a process: its own binary and `trireme controller`.
func Program() daemon.Program {
	cfg := NewConfig()
	return daemon.Program{
		Name:     "controller",
		Short:    "Bring the cluster nearer to what its objects ask for",
		AddFlags: cfg.AddFlags,
		Build:    func(logger *slog.Logger) (daemon.Service, error) { return New(cfg, logger) },
	}
}
