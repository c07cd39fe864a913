// Command controller runs the controllers of a cluster.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
	"trireme.dev/services/controller"
)

func main() {
	cfg := controller.NewConfig()
	var logging telemetry.Config
	flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	cfg.AddFlags(flags)
	logging.AddFlags(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(2)
	}
	daemon.Main(func(ctx context.Context) error {
		service, err := controller.New(cfg, telemetry.NewLogger(logging, "controller"))
		if err != nil {
			return err
		}
		return service.Run(ctx)
	})
}
