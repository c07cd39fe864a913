package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"trireme.dev/client"
	"trireme.dev/client/kind"
)

func (c *cli) scaleCommand() *cobra.Command {
	var s selection
	var replicas, current int32
	cmd := &cobra.Command{
		Use:     "scale (TYPE NAME... | TYPE/NAME... | -f FILE) --replicas N",
		Short:   "Set the number of pods of a Deployment or ReplicaSet",
		Example: "  trireme scale deployment web --replicas 5",
		RunE: c.online(func(ctx context.Context, args []string) error {
			if replicas < 0 {
				return usage("--replicas is needed: a number from 0")
			}
			targets, err := c.chosen(&s, args, false)
			if err != nil {
				return err
			}
			for _, t := range targets {
				if !isScalable(t.kind) {
					return fmt.Errorf("a %s has no replicas to scale", t.kind.Name)
				}
			}
			found, errs := c.fetch(ctx, &s, targets)
			for _, l := range found {
				if have := replicasOf(l.object); current >= 0 && have != int64(current) {
					errs = append(errs, fmt.Errorf("%s has %d replicas, not %d as --current-replicas expects", l, have, current))
					continue
				}
				if _, err := c.patch(ctx, l, map[string]any{"spec": map[string]any{"replicas": replicas}}); err != nil {
					errs = append(errs, err)
					continue
				}
				c.print("%s scaled", l)
			}
			return c.failures(errs)
		}),
	}
	c.addSelection(cmd, &s)
	cmd.Flags().BoolVar(&s.all, "all", false, "all objects of the kind in the namespace")
	cmd.Flags().Int32Var(&replicas, "replicas", -1, "`number` of pods wanted")
	cmd.Flags().Int32Var(&current, "current-replicas", -1, "scale only what has this `number` now")
	cmd.ValidArgsFunction = c.completeTargets
	return cmd
}

// isScalable reports whether a kind has spec.replicas.
func isScalable(k *kind.Kind) bool {
	spec := k.Message.Descriptor().Fields().ByName("spec")
	return spec != nil && spec.Message() != nil && spec.Message().Fields().ByName("replicas") != nil
}

func replicasOf(o client.Object) int64 {
	m := o.ProtoReflect()
	spec := m.Get(m.Descriptor().Fields().ByName("spec")).Message()
	return spec.Get(spec.Descriptor().Fields().ByName("replicas")).Int()
}
