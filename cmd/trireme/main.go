// Command trireme is the whole system in one binary: the CLI, the services, and `up`, which runs them together.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"trireme.dev/cmd/trireme/internal/certs"
	"trireme.dev/cmd/trireme/internal/cli"
	"trireme.dev/cmd/trireme/internal/service"
	"trireme.dev/cmd/trireme/internal/up"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
)

func main() {
	root := &cobra.Command{
		Use:     "trireme",
		Short:   "A container and GPU orchestrator in five small gRPC services",
		Version: telemetry.Version(),
		// daemon.Main prints the error, once; a usage text would bury it.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddGroup(
		&cobra.Group{ID: "cluster", Title: "Run a cluster on this machine:"},
		&cobra.Group{ID: "service", Title: "Run one service:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
		}
		root.AddCommand(commands...)
	}
	add("cluster", append(up.Commands(), certs.Commands()...)...)
	add("service", service.Commands()...)
	cli.AddTo(root, cli.Deps{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Dial: cli.Dial, Version: telemetry.Version(),
		Node: []*cobra.Command{up.JoinCommand()},
	})

	daemon.Main(func(ctx context.Context) error { return root.ExecuteContext(ctx) })
}
