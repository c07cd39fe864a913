package cli

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/spf13/cobra"

	"trireme.dev/cmd/trireme/internal/cli/status"
	"trireme.dev/kit/daemon"
)

func (c *cli) statusCommand() *cobra.Command {
	var (
		output string
		all    bool
	)
	cmd := &cobra.Command{
		Use: "status", Short: "Show how the cluster does: gateways, scheduler, controller, etcd, nodes",
		Long: `Show how the cluster does. The first line is the verdict, with where to look; then every process of the control
plane, the members of etcd, and the nodes with their agents and device plugins. The exit code is 1 where something is
wrong.`,
		Args: exactly(0, "no arguments"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			if output != "" && output != "json" {
				return usage("-o %s: want json", output)
			}
			report, err := status.Collect(ctx, c.conn)
			if err != nil {
				return err
			}
			logs := ""
			if c.context.StateDir != "" {
				logs = filepath.Join(c.context.StateDir, "log")
			}
			report.Judge(logs)
			if err := c.printStatus(report, output, all); err != nil {
				return err
			}
			if !report.Healthy {
				return &daemon.ExitError{Code: 1} // what is wrong has been printed
			}
			return nil
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`format`: json")
	cmd.Flags().BoolVar(&all, "all", false, "list all nodes of a large cluster, not only those with a problem")
	return cmd
}

func (c *cli) printStatus(report *status.Report, output string, all bool) error {
	if output == "json" {
		enc := json.NewEncoder(c.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	verdict, tables := report.Tables(all)
	for _, line := range verdict {
		c.print("%s", line)
	}
	for _, lines := range tables {
		c.print("")
		if err := (&rows{out: c.Out}).write(lines...); err != nil {
			return err
		}
	}
	return nil
}
