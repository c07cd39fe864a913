package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/cmd/trireme/internal/cli/table"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// changes are KEY=VALUE and KEY- arguments.
type changes struct {
	set    map[string]string
	remove []string
}

func parseChanges(args []string) (*changes, error) {
	ch := &changes{set: map[string]string{}}
	for _, arg := range args {
		key, value, sets := strings.Cut(arg, "=")
		name, removes := strings.CutSuffix(arg, "-")
		switch {
		case sets && key != "":
			if _, twice := ch.set[key]; twice {
				return nil, usage("%s is set twice", key)
			}
			ch.set[key] = value
		case removes && name != "" && !sets:
			ch.remove = append(ch.remove, name)
		default:
			return nil, usage("%q: want KEY=VALUE to set or KEY- to remove", arg)
		}
	}
	for _, key := range ch.remove {
		if _, both := ch.set[key]; both {
			return nil, usage("%s is both set and removed", key)
		}
	}
	return ch, nil
}

// isChange tells KEY=VALUE and KEY- from names, which contain no = and do not end in -.
func isChange(arg string) bool { return strings.Contains(arg, "=") || strings.HasSuffix(arg, "-") }

type labelFlags struct {
	selection

	overwrite bool
	list      bool
}

func (c *cli) labelCommand() *cobra.Command {
	return c.metadataCommand("label", "labels", "labeled", (*metav1.ObjectMeta).GetLabels,
		"  trireme label pod web-1 tier=front\n  trireme label node n1 zone- --overwrite")
}

func (c *cli) annotateCommand() *cobra.Command {
	return c.metadataCommand("annotate", "annotations", "annotated", (*metav1.ObjectMeta).GetAnnotations,
		"  trireme annotate deploy web team=payments")
}

func (c *cli) metadataCommand(verb, field, done string, read func(*metav1.ObjectMeta) map[string]string, example string) *cobra.Command {
	f := &labelFlags{}
	cmd := &cobra.Command{
		Use:     verb + " (TYPE NAME... | TYPE/NAME... | TYPE -l SELECTOR | TYPE --all) KEY=VALUE... KEY-...",
		Short:   fmt.Sprintf("Set or remove %s", field),
		Example: example,
		Args:    atLeast(1, "objects and changes"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			first := slices.IndexFunc(args, isChange)
			if first < 0 {
				first = len(args)
			}
			ch, err := parseChanges(args[first:])
			if err != nil {
				return err
			}
			if len(ch.set)+len(ch.remove) == 0 && !f.list {
				return usage("say what to change: KEY=VALUE sets, KEY- removes")
			}
			targets, err := c.chosen(&f.selection, args[:first], false)
			if err != nil {
				return err
			}
			found, errs := c.fetch(ctx, &f.selection, targets)
			if len(found) == 0 && len(errs) == 0 {
				c.nothing(targets)
			}
			for _, l := range found {
				if f.list {
					have := read(l.object.GetMetadata())
					for _, key := range slices.Sorted(maps.Keys(have)) {
						c.print("%s=%s", key, have[key])
					}
					continue
				}
				if err := c.changeMetadata(ctx, l, f, field, done, read, ch); err != nil {
					errs = append(errs, err)
				}
			}
			return c.failures(errs)
		}),
	}
	c.addSelection(cmd, &f.selection)
	cmd.Flags().BoolVar(&f.all, "all", false, "all objects of the kind in the namespace")
	cmd.Flags().BoolVar(&f.overwrite, "overwrite", false, "replace values that are there already")
	cmd.Flags().BoolVar(&f.list, "list", false, "print what is set instead")
	cmd.ValidArgsFunction = c.completeTargets
	return cmd
}

func (c *cli) changeMetadata(ctx context.Context, l located, f *labelFlags, field, done string,
	read func(*metav1.ObjectMeta) map[string]string, ch *changes) error {
	meta := l.object.GetMetadata()
	have := read(meta)
	patch := map[string]any{}
	for key, value := range ch.set {
		old, is := have[key]
		if is && old != value && !f.overwrite {
			return fmt.Errorf("%s has %s=%s already; --overwrite replaces it", l, key, old)
		}
		if !is || old != value {
			patch[key] = value
		}
	}
	for _, key := range ch.remove {
		if _, is := have[key]; is {
			patch[key] = nil
		} else {
			c.say("%s has no %s %q", l, strings.TrimSuffix(field, "s"), key)
		}
	}
	switch {
	case len(patch) == 0:
		done = "not " + done
	case len(ch.set) == 0 && field == "labels":
		done = "unlabeled"
	}
	if len(patch) > 0 {
		// The version that was read makes a value that appears meanwhile a conflict instead of a loss.
		change := map[string]any{field: patch}
		if !f.overwrite {
			change["resourceVersion"] = meta.GetResourceVersion()
		}
		if _, err := c.patch(ctx, l, map[string]any{"metadata": change}); apierr.IsConflict(err) {
			return fmt.Errorf("%s was changed by someone else meanwhile: run the command again, or with --overwrite", l)
		} else if err != nil {
			return err
		}
	}
	c.print("%s %s", l, done)
	return nil
}

// patch writes a merge patch.
func (c *cli) patch(ctx context.Context, l located, patch any) (client.Object, error) {
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patch %s/%s: %w", table.ResourceName(l.kind), l.object.GetMetadata().GetName(), err)
	}
	meta := l.object.GetMetadata()
	return c.writer(l.kind, false).Patch(ctx, meta.GetNamespace(), meta.GetName(), metav1.PatchType_PATCH_TYPE_MERGE, text, "")
}
