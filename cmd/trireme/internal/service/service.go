// Package service makes each service a subcommand: `trireme apiserver` and so on. `up` starts them so, and they are the
// same as the small binaries under services/*/cmd. It only wires; what a service does and which flags it has is its own.
package service

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	var (
		apiserverConfig  apiserver.Config
		schedulerConfig  = scheduler.NewConfig()
		controllerConfig = controller.NewConfig()
		nodeagentConfig  nodeagent.Config
		devicedConfig    deviced.Config
	)
	return []*cobra.Command{
		command("apiserver", "Serve every kind and keep their objects in etcd", apiserverConfig.AddFlags,
			func(l *slog.Logger) (daemon.Service, error) { return apiserver.New(apiserverConfig, l) }),
		command("scheduler", "Put pods on nodes", schedulerConfig.AddFlags,
			func(l *slog.Logger) (daemon.Service, error) { return scheduler.New(schedulerConfig, l) }),
		command("controller", "Bring the cluster nearer to what its objects ask for", controllerConfig.AddFlags,
			func(l *slog.Logger) (daemon.Service, error) { return controller.New(controllerConfig, l) }),
		command("nodeagent", "Run the pods of this machine, or of simulated nodes", nodeagentConfig.AddFlags,
			func(l *slog.Logger) (daemon.Service, error) { return nodeagent.New(nodeagentConfig, l) }),
		command("deviced", "Offer this machine's devices to its node agent", devicedConfig.AddFlags,
			func(l *slog.Logger) (daemon.Service, error) { return deviced.New(devicedConfig, l) }),
	}
}

func command(name, short string, addFlags func(*pflag.FlagSet), build func(*slog.Logger) (daemon.Service, error)) *cobra.Command {
	var logs telemetry.Config
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := build(telemetry.NewLogger(logs, name))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return service.Run(cmd.Context())
		},
	}
	addFlags(cmd.Flags())
	logs.AddFlags(cmd.Flags())
	return cmd
}
