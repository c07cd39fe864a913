package service

import (
	"github.com/spf13/cobra"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/scheduler"
)

// replayCommand replays what a scheduler recorded.
func replayCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Make the decisions of a record again",
		Long: `Make the decisions again that a scheduler with --record FILE made: with its configuration, its seed and its time. All of them
come out as they were, or the first that does not is shown with those before it.

With --config the record is replayed under another configuration, and the differences are shown: which pods go to other
nodes, go nowhere, or are preempted.

Exit code 0: all as recorded. 1: something differs. 2: it cannot be told.`,
		Example: `  trireme scheduler replay scheduler.record
  trireme scheduler replay scheduler.record --config packing.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			same, err := scheduler.Replay(args[0], config, cmd.OutOrStdout())
			switch {
			case err != nil:
				return &daemon.ExitError{Code: 2, Err: err}
			case !same:
				return &daemon.ExitError{Code: 1}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration `file` to replay with, instead of the recorded one")
	return cmd
}
