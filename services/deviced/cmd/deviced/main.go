// Command deviced offers the devices of a machine to its node agent.
package main

import (
	"log/slog"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/deviced"
)

func main() {
	var cfg deviced.Config
	daemon.ServiceMain("deviced", cfg.AddFlags, func(logger *slog.Logger) (*deviced.Deviced, error) { return deviced.New(cfg, logger) })
}
