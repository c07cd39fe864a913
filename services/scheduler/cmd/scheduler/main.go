// Command scheduler puts pods on nodes.
package main

import (
	"log/slog"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/scheduler"
)

func main() {
	cfg := scheduler.NewConfig()
	daemon.ServiceMain("scheduler", cfg.AddFlags, func(logger *slog.Logger) (*scheduler.Scheduler, error) { return scheduler.New(cfg, logger) })
}
