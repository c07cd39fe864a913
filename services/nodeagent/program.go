package nodeagent

import (
	"log/slog"

	"trireme.dev/kit/daemon"
)

// Program is the node agent as a process: its own binary and `trireme nodeagent`.
func Program() daemon.Program {
	var cfg Config
	return daemon.Program{
		Name:     "nodeagent",
		Short:    "Run the pods of this machine, or of simulated nodes",
		AddFlags: cfg.AddFlags,
		Build:    func(logger *slog.Logger) (daemon.Service, error) { return New(cfg, logger) },
	}
}
