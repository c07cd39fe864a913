// Command scheduler puts pods on nodes.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
	"trireme.dev/services/scheduler"
)

func main() {
	cfg := scheduler.NewConfig()
	var logging telemetry.Config
	flags := pflag.NewFlagSet("scheduler", pflag.ContinueOnError)
	cfg.AddFlags(flags)
	logging.AddFlags(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "scheduler:", err)
		os.Exit(2)
	}
	daemon.Main(func(ctx context.Context) error {
		service, err := scheduler.New(cfg, telemetry.NewLogger(logging, "scheduler"))
		if err != nil {
			return err
		}
		return service.Run(ctx)
	})
}
