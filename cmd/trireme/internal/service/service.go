// Package service makes each service a subcommand: `trireme apiserver` and so on. `up` starts them so, and they are the
// same as the small binaries under services/*/cmd. It only wires; what a service does and which flags it has is its own.
package service

import (
	"github.com/spf13/cobra"

	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
	"trireme.dev/services/apiserver"
	"trireme.dev/services/controller"
	"trireme.dev/services/deviced"
	"trireme.dev/services/nodeagent"
	"trireme.dev/services/scheduler"
)

// Commands returns one command per service.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		command(apiserver.Program()), command(scheduler.Program(), replayCommand()), command(controller.Program()),
		command(nodeagent.Program()), command(deviced.Program()),
	}
}

func command(p daemon.Program, more ...*cobra.Command) *cobra.Command {
	var cfg telemetry.Config
	cmd := &cobra.Command{
		Use:   p.Name,
		Short: p.Short,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return p.Run(cmd.Context(), cfg) },
	}
	p.AddFlags(cmd.Flags())
	cfg.AddFlags(cmd.Flags())
	cmd.AddCommand(more...)
	return cmd
}
