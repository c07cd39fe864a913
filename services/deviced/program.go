package deviced

import (
	"log/slog"

	"trireme.dev/kit/daemon"
)

// Program is deviced as a process: its own binary and `trireme deviced`.
func Program() daemon.Program {
	var cfg Config
	return daemon.Program{
		Name:     "deviced",
		Short:    "Offer this machine's devices to its node agent",
		AddFlags: cfg.AddFlags,
		Build:    func(logger *slog.Logger) (daemon.Service, error) { return New(cfg, logger) },
	}
}
