package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func (c *cli) versionCommand() *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of this program, the gateway and the nodes", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.print("Client:  %s", c.build())
			if clientOnly {
				return nil
			}
			return c.online(func(ctx context.Context, _ []string) error { return c.serverVersions(ctx) })(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "of this program only")
	return cmd
}

// build describes this program.
func (c *cli) build() string {
	text := c.Version
	if info, ok := debug.ReadBuildInfo(); ok {
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if revision := settings["vcs.revision"]; revision != "" {
			text += " (" + revision[:min(12, len(revision))]
			if settings["vcs.modified"] == "true" {
				text += ", modified"
			}
			text += ")"
		}
	}
	return fmt.Sprintf("%s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (c *cli) serverVersions(ctx context.Context) error {
	nodes, err := client.For[*corev1.Node](c.conn).List(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	c.print("Gateway: %s", c.context.Server)
	versions := map[string]int{}
	for _, n := range nodes.Items {
		info := n.GetStatus().GetNodeInfo()
		versions[fmt.Sprintf("%s, %s, %s/%s", info.GetKubeletVersion(), info.GetContainerRuntimeVersion(), info.GetOperatingSystem(), info.GetArchitecture())]++
	}
	var lines []string
	for version, n := range versions {
		lines = append(lines, fmt.Sprintf("Nodes:   %s (%d)", version, n))
	}
	slices.Sort(lines)
	for _, line := range lines {
		c.print("%s", line)
	}
	return nil
}

func (c *cli) clusterInfoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cluster-info", Short: "Print where the cluster is and what there is in it", Args: exactly(0, "no arguments"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			nodes, err := client.For[*corev1.Node](c.conn).List(ctx, client.ListOptions{})
			if err != nil {
				return err
			}
			pods, err := client.For[*corev1.Pod](c.conn).List(ctx, client.ListOptions{})
			if err != nil {
				return err
			}
			c.print("Gateway is running at %s", c.context.Server)
			if c.context.StateDir != "" {
				c.print("State and logs are in %s", c.context.StateDir)
			}
			sum := summarize(nodes.Items, pods.Items)
			c.print("Nodes: %d, %d of them Ready. Pods: %d, %d of them Running. GPUs: %d of %d in use.",
				len(nodes.Items), sum.ready, len(pods.Items), sum.running, sum.usedGPUs, sum.gpus)
			return nil
		}),
	}
}

func (c *cli) apiResourcesCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "api-resources", Short: "List the kinds there are, with their short names", Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if output != "" && output != "name" && output != "wide" {
				return usage("-o %s: want name or wide", output)
			}
			lines := [][]string{{"NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"}}
			if output == "wide" {
				lines[0] = append(lines[0], "VERSIONS", "CATEGORIES", "SERVICE")
			}
			for _, k := range c.registry.All() {
				if output == "name" {
					c.print("%s", qualified(k))
					continue
				}
				line := []string{k.Plural, strings.Join(k.ShortNames, ","), k.APIVersion(), fmt.Sprint(k.Namespaced), k.Name}
				if output == "wide" {
					var versions []string
					for _, v := range c.registry.Versions(k) {
						versions = append(versions, v.APIVersions...)
					}
					line = append(line, strings.Join(versions, ","), strings.Join(k.Options.GetCategories(), ","), string(k.ServiceName))
				}
				lines = append(lines, line)
			}
			if output == "name" {
				return nil
			}
			return (&rows{out: c.Out}).write(lines...)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`format`: name, wide")
	return cmd
}

// qualified is a plural with its API group: deployments.apps.
func qualified(k *kind.Kind) string {
	if group, _, ok := strings.Cut(k.APIVersion(), "/"); ok {
		return k.Plural + "." + group
	}
	return k.Plural
}
