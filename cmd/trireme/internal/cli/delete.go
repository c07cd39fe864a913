package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/cmd/trireme/internal/cli/table"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

type deleteFlags struct {
	selection

	grace          int64
	force, now     bool
	wait           bool
	timeout        time.Duration
	ignoreNotFound bool
	cascade        string
	dryRun         string
	output         string
}

func (c *cli) deleteCommand() *cobra.Command {
	f := &deleteFlags{}
	cmd := &cobra.Command{
		Use:   "delete (TYPE NAME... | TYPE/NAME... | TYPE -l SELECTOR | TYPE --all | -f FILE)",
		Short: "Delete objects and wait until they are gone",
		Example: `  trireme delete pod web-1 web-2
  trireme delete -f web.yaml
  trireme delete pods -l app=web --grace-period 5`,
		RunE: c.online(func(ctx context.Context, args []string) error { return c.delete(ctx, f, args) }),
	}
	c.addSelection(cmd, &f.selection)
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "all objects of the kind in the namespace")
	flags.Int64Var(&f.grace, "grace-period", -1, "`seconds` that containers get to end by themselves (default: what the pod says)")
	flags.BoolVar(&f.now, "now", false, "as --grace-period 1")
	flags.BoolVar(&f.force, "force", false, "delete at once, without waiting for the node to confirm; containers may run on for a while")
	flags.BoolVar(&f.wait, "wait", true, "wait until the objects are gone")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long to wait; 0 for as long as it takes")
	flags.BoolVar(&f.ignoreNotFound, "ignore-not-found", false, "an object that does not exist is no error")
	flags.StringVar(&f.cascade, "cascade", "background", "what becomes of dependents: background, foreground (they go first) or orphan (they stay)")
	flags.StringVarP(&f.output, "output", "o", "", "name prints only the names")
	addDryRun(cmd, &f.dryRun)
	cmd.ValidArgsFunction = c.completeTargets
	c.completeWords(cmd, "cascade", "background", "foreground", "orphan")
	return cmd
}

func (f *deleteFlags) options() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	var ok bool
	if o.PropagationPolicy, ok = map[string]string{
		"background": "Background", "foreground": "Foreground", "orphan": "Orphan",
	}[f.cascade]; !ok {
		return nil, usage("--cascade=%s: want background, foreground or orphan", f.cascade)
	}
	switch {
	case f.now && (f.grace >= 0 || f.force):
		return nil, usage("--now stands for --grace-period 1: it goes with neither --grace-period nor --force")
	case f.force && f.grace > 0:
		return nil, usage("--force means --grace-period 0; a longer one contradicts it")
	case f.now:
		o.GracePeriodSeconds = proto.Int64(1)
	case f.force:
		o.GracePeriodSeconds = proto.Int64(0)
	case f.grace == 0:
		// Nothing is left to confirm that the containers ended: that must be asked for by --force.
		o.GracePeriodSeconds = proto.Int64(1)
	case f.grace > 0:
		o.GracePeriodSeconds = proto.Int64(f.grace)
	}
	return o, nil
}

func (c *cli) delete(ctx context.Context, f *deleteFlags, args []string) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	dry, err := parseDryRun(f.dryRun)
	if err != nil {
		return err
	}
	if f.output != "" && f.output != "name" {
		return usage("-o %s: want name", f.output)
	}
	options.DryRun = dry == dryRunServer
	targets, err := c.chosen(&f.selection, args, false)
	if err != nil {
		return err
	}
	// What a selector selects is found first, so that each object is named and waited for.
	found, errs := c.expand(ctx, f, targets)
	if len(found) == 0 && len(errs) == 0 {
		c.nothing(targets)
		return nil
	}
	if f.force && dry == dryRunNone {
		c.warn("", "immediate deletion does not wait until the containers have ended: they may run on for a while")
	}
	var going []target
	uids := map[target]string{}
	for _, t := range found {
		if dry != dryRunClient {
			last, err := c.resource(t.kind).Delete(ctx, t.namespace, t.name, options)
			if err != nil {
				if !f.ignoreNotFound || !apierr.IsNotFound(err) {
					errs = append(errs, err)
				}
				continue
			}
			uids[t] = last.GetMetadata().GetUid()
			going = append(going, t)
		}
		word := "deleted"
		if f.force {
			word = "force deleted"
		}
		if f.output == "name" {
			c.print("%s", t)
		} else {
			c.print("%s %q %s%s", table.ResourceName(t.kind), t.name, word, dry)
		}
	}
	if f.wait && dry == dryRunNone {
		if err := c.waitGone(ctx, f.timeout, going, uids); err != nil {
			errs = append(errs, err)
		}
	}
	return c.failures(errs)
}

func (c *cli) expand(ctx context.Context, f *deleteFlags, targets []target) (found []target, errs []error) {
	for _, t := range targets {
		if t.name != "" {
			found = append(found, t)
			continue
		}
		objects, failed := c.fetch(ctx, &f.selection, []target{t})
		errs = append(errs, failed...)
		for _, o := range objects {
			meta := o.object.GetMetadata()
			found = append(found, target{t.kind, meta.GetNamespace(), meta.GetName()})
		}
	}
	return found, errs
}

// waitGone waits until the objects of these uids are no more.
func (c *cli) waitGone(ctx context.Context, timeout time.Duration, going []target, uids map[target]string) error {
	limited, cancel := bounded(ctx, timeout)
	defer cancel()
	progress := c.progress()
	defer progress.clear()
	for i, t := range going {
		if len(going) > 1 {
			progress.show("waiting until %s is gone, %d of %d", t, i+1, len(going))
		} else {
			progress.show("waiting until %s is gone", t)
		}
		err := c.gone(limited, t, uids[t])
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("%s is still there after %s: it is being deleted; see `trireme describe %s`", t, timeout, t)
		}
		if err != nil {
			return fmt.Errorf("wait until %s is gone: %w", t, err)
		}
	}
	return nil
}

// gone waits until there is no object of this name and uid.
func (c *cli) gone(ctx context.Context, t target, uid string) error {
	is := func(o client.Object) bool { return uid == "" || o.GetMetadata().GetUid() == uid }
	return c.follow(ctx, t.kind, optionsFor(&selection{}, t), func(ch change) (bool, error) {
		if ch.initial {
			return len(ch.objects) > 0 && is(ch.objects[0]), nil
		}
		// Another object of the name means that the first is gone as well.
		return !ch.deleted && is(ch.objects[0]), nil
	})
}
