package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/cmd/trireme/internal/nodeimage"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

func (c *cli) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "See and load the images on nodes", Args: exactly(0, "load or ls"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var loadTo, listOf []string
	load := &cobra.Command{
		Use: "load FILE...", Short: "Load image archives (OCI layout or docker save, plain or gzip) into nodes",
		Example: "  trireme image load app.tar --node n1",
		Args:    atLeast(1, "archives"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			return c.onNodes(ctx, loadTo, func(node string) error {
				for _, file := range args {
					images, err := c.loadImage(ctx, node, file)
					if err != nil {
						return err
					}
					c.print("%s: loaded %s", node, strings.Join(images, ", "))
				}
				return nil
			})
		}),
	}
	load.Flags().StringArrayVar(&loadTo, "node", nil, "`name` of a node (repeatable; default: all)")
	list := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the images on nodes", Args: exactly(0, "no arguments"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			lines := [][]string{{"NODE", "IMAGE", "SIZE"}}
			err := c.onNodes(ctx, listOf, func(node string) error {
				response, err := nodev1.NewNodeServiceClient(c.conn).ListImages(ctx, &nodev1.ListImagesRequest{NodeName: node})
				if err != nil {
					return apierr.FromStatus(err)
				}
				for _, image := range response.GetImages() {
					name := "<none>"
					if len(image.GetNames()) > 0 {
						name = image.GetNames()[0]
					}
					lines = append(lines, []string{node, name, size(image.GetSizeBytes())})
				}
				return nil
			})
			if len(lines) > 1 {
				return errors.Join((&rows{out: c.Out}).write(lines...), err)
			}
			if err == nil {
				c.say("No images found")
			}
			return err
		}),
	}
	list.Flags().StringArrayVar(&listOf, "node", nil, "`name` of a node (repeatable; default: all)")
	for _, sub := range []*cobra.Command{load, list} {
		c.complete(sub, "node", func(ctx context.Context) []string { return c.namesOf(ctx, "nodes") })
	}
	cmd.AddCommand(load, list)
	return cmd
}

// onNodes does something on the nodes named, or on all.
func (c *cli) onNodes(ctx context.Context, names []string, do func(node string) error) error {
	if len(names) == 0 {
		nodes, err := client.For[*corev1.Node](c.conn).List(ctx, client.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			names = append(names, n.GetMetadata().GetName())
		}
		slices.Sort(names)
		if len(names) == 0 {
			return errors.New("the cluster has no nodes yet; see `trireme get nodes`")
		}
	}
	var errs []error
	for _, node := range names {
		if err := do(node); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", node, err))
		}
	}
	return c.failures(errs)
}

// loadImage sends an archive to a node and shows how far it is.
func (c *cli) loadImage(ctx context.Context, node, file string) ([]string, error) {
	progress := c.progress()
	defer progress.clear()
	return nodeimage.Load(ctx, c.conn, node, file, func(sent int64) {
		progress.show("loading %s into %s: %s", file, node, size(sent))
	})
}

// size writes a number of bytes for people.
func size(bytes int64) string {
	value := float64(bytes)
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if value < 1024 {
			return fmt.Sprintf("%.4g %s", value, unit)
		}
		value /= 1024
	}
	return fmt.Sprintf("%.4g GiB", value)
}
