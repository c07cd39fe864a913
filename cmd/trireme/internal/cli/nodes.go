package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// conflictRetries bounds how often a write is repeated on what others wrote meanwhile.
const conflictRetries = 5

// cordonCommand keeps new pods away from nodes, or lets them come again.
func (c *cli) cordonCommand(cordon bool) *cobra.Command {
	verb, short := "cordon", "Keep new pods away from nodes"
	if !cordon {
		verb, short = "uncordon", "Let new pods come to nodes again"
	}
	var s selection
	var dryRun string
	cmd := &cobra.Command{
		Use: verb + " (NODE... | -l SELECTOR)", Short: short,
		RunE: c.online(func(ctx context.Context, args []string) error {
			if len(args) == 0 && s.labels == "" {
				return usage("name the nodes, or select them with -l")
			}
			dry, err := parseDryRun(dryRun)
			if err != nil {
				return err
			}
			found, errs := c.nodes(ctx, &s, args)
			for _, l := range found {
				if err := c.cordon(ctx, l, cordon, dry); err != nil {
					errs = append(errs, err)
				}
			}
			return c.failures(errs)
		}),
	}
	cmd.Flags().StringVarP(&s.labels, "selector", "l", "", "label `selector`")
	addDryRun(cmd, &dryRun)
	cmd.ValidArgsFunction = c.completeNodes
	return cmd
}

// nodes fetches nodes by name or selector.
func (c *cli) nodes(ctx context.Context, s *selection, names []string) ([]located, []error) {
	targets, err := c.chosen(s, append([]string{"nodes"}, names...), true)
	if err != nil {
		return nil, []error{err}
	}
	return c.fetch(ctx, s, targets)
}

func (c *cli) taintCommand() *cobra.Command {
	var s selection
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "taint nodes (NODE... | -l SELECTOR | --all) KEY[=VALUE]:EFFECT... KEY[:EFFECT]-...",
		Short: "Set or remove taints, which keep pods that do not tolerate them away",
		Example: `  trireme taint nodes n1 dedicated=train:NoSchedule
  trireme taint nodes n1 dedicated-`,
		Args: atLeast(2, "nodes and taints"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			k, err := c.one(args[0])
			if err != nil {
				return err
			}
			if k.Name != "Node" {
				return usage("only nodes have taints: trireme taint nodes NAME KEY=VALUE:EFFECT")
			}
			names := args[1:]
			if i := slices.IndexFunc(names, func(a string) bool { return strings.Contains(a, ":") || isChange(a) }); i >= 0 {
				names = names[:i]
			}
			ch, err := parseTaints(args[1+len(names):])
			if err != nil {
				return err
			}
			if len(names) == 0 && s.labels == "" && !s.all {
				return usage("name the nodes, select them with -l, or say --all")
			}
			found, errs := c.nodes(ctx, &s, names)
			for _, l := range found {
				if err := c.taint(ctx, l, ch, overwrite); err != nil {
					errs = append(errs, err)
					continue
				}
				c.print("%s %s", l, ch.done())
			}
			return c.failures(errs)
		}),
	}
	cmd.Flags().StringVarP(&s.labels, "selector", "l", "", "label `selector`")
	cmd.Flags().BoolVar(&s.all, "all", false, "all nodes")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace the value of a taint that is there already")
	return cmd
}

type taintChanges struct{ set, remove []*corev1.Taint }

func (ch *taintChanges) done() string {
	if len(ch.set) == 0 {
		return "untainted"
	}
	return "tainted"
}

// parseTaints reads KEY[=VALUE]:EFFECT, KEY:EFFECT- and KEY-.
func parseTaints(args []string) (*taintChanges, error) {
	ch := &taintChanges{}
	for _, arg := range args {
		text, remove := strings.CutSuffix(arg, "-")
		before, effect, hasEffect := strings.Cut(text, ":")
		key, value, hasValue := strings.Cut(before, "=")
		t := &corev1.Taint{Key: key, Effect: effect}
		if hasValue {
			t.Value = proto.String(value)
		}
		switch {
		case key == "" || !remove && effect == "" || remove && hasValue || hasEffect && effect == "":
			return nil, usage("%q: want KEY[=VALUE]:EFFECT to set or KEY[:EFFECT]- to remove", arg)
		case remove:
			ch.remove = append(ch.remove, t)
		default:
			ch.set = append(ch.set, t)
		}
	}
	if len(ch.set)+len(ch.remove) == 0 {
		return nil, usage("say which taints: KEY[=VALUE]:EFFECT sets, KEY[:EFFECT]- removes")
	}
	return ch, nil
}

// taint changes one node, again on what others wrote meanwhile.
func (c *cli) taint(ctx context.Context, l located, ch *taintChanges, overwrite bool) error {
	nodes := client.For[*corev1.Node](c.conn).With(&metav1.WriteOptions{FieldManager: c.manager()}).
		OnWarning(func(w string) { c.warn("", w) })
	node, _ := l.object.(*corev1.Node)
	for try := 0; ; try++ {
		if node.Spec == nil {
			node.Spec = &corev1.NodeSpec{}
		}
		if err := ch.apply(node.Spec, l, overwrite); err != nil {
			return err
		}
		_, err := nodes.Update(ctx, node)
		if !apierr.IsConflict(err) || try == conflictRetries {
			return err
		}
		if node, err = nodes.Get(ctx, "", node.GetMetadata().GetName()); err != nil {
			return err
		}
	}
}

func (ch *taintChanges) apply(spec *corev1.NodeSpec, l located, overwrite bool) error {
	for _, t := range ch.remove {
		kept := slices.DeleteFunc(slices.Clone(spec.GetTaints()), func(have *corev1.Taint) bool {
			return have.GetKey() == t.GetKey() && (t.GetEffect() == "" || have.GetEffect() == t.GetEffect())
		})
		if len(kept) == len(spec.GetTaints()) {
			return fmt.Errorf("%s has no taint %s", l, strings.TrimSuffix(t.GetKey()+":"+t.GetEffect(), ":"))
		}
		spec.Taints = kept
	}
	for _, t := range ch.set {
		i := slices.IndexFunc(spec.GetTaints(), func(have *corev1.Taint) bool {
			return have.GetKey() == t.GetKey() && have.GetEffect() == t.GetEffect()
		})
		switch {
		case i < 0:
			spec.Taints = append(spec.Taints, t)
		case spec.GetTaints()[i].GetValue() != t.GetValue() && !overwrite:
			return fmt.Errorf("%s has the taint %s:%s with another value already; --overwrite replaces it", l, t.GetKey(), t.GetEffect())
		default:
			spec.Taints[i] = t
		}
	}
	return nil
}
