// Command deviced offers the devices of a machine to its node agent.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
	"trireme.dev/services/deviced"
)

func main() {
	var cfg deviced.Config
	var logging telemetry.Config
	flags := pflag.NewFlagSet("deviced", pflag.ContinueOnError)
	cfg.AddFlags(flags)
	logging.AddFlags(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "deviced:", err)
		os.Exit(2)
	}
	daemon.Main(func(ctx context.Context) error {
		service, err := deviced.New(cfg, telemetry.NewLogger(logging, "deviced"))
		if err != nil {
			return err
		}
		return service.Run(ctx)
	})
}
