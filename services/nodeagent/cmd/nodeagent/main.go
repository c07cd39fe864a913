// Command nodeagent runs the pods of a node. "nodeagent cleanup" removes all that they have on the machine.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
	"trireme.dev/services/nodeagent"
)

func main() {
	var cfg nodeagent.Config
	var logging telemetry.Config
	flags := pflag.NewFlagSet("nodeagent", pflag.ContinueOnError)
	cfg.AddFlags(flags)
	logging.AddFlags(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nodeagent:", err)
		os.Exit(2)
	}
	logger := telemetry.NewLogger(logging, "nodeagent")
	daemon.Main(func(ctx context.Context) error {
		switch args := flags.Args(); {
		case len(args) == 1 && args[0] == "cleanup":
			return nodeagent.Cleanup(ctx, cfg, logger)
		case len(args) > 0:
			return fmt.Errorf("unknown argument %q: want cleanup, or none", args[0])
		}
		agent, err := nodeagent.New(cfg, logger)
		if err != nil {
			return err
		}
		return agent.Run(ctx)
	})
}
