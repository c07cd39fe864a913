// Command controller runs the controllers of a cluster.
package main

import (
	"log/slog"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/controller"
)

func main() {
	cfg := controller.NewConfig()
	daemon.ServiceMain("controller", cfg.AddFlags, func(logger *slog.Logger) (*controller.Controller, error) { return controller.New(cfg, logger) })
}
