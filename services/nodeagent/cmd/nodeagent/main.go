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
	if len(os.Args) > 1 && os.Args[1] == "cleanup" {
		daemon.Main(cleanup)
	}
	nodeagent.Program().Main()
}

func cleanup(ctx context.Context) error {
	var cfg nodeagent.Config
	var logging telemetry.Config
	flags := pflag.NewFlagSet("nodeagent cleanup", pflag.ContinueOnError)
	cfg.AddFlags(flags)
	logging.AddFlags(flags)
	if err := flags.Parse(os.Args[2:]); err != nil {
		return &daemon.ExitError{Code: 2, Err: err}
	}
	if flags.NArg() > 0 {
		return &daemon.ExitError{Code: 2, Err: fmt.Errorf("unknown argument %q", flags.Arg(0))}
	}
	return nodeagent.Cleanup(ctx, cfg, telemetry.NewLogger(logging, "nodeagent"))
}
