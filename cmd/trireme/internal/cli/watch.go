package cli

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/cmd/trireme/internal/cli/table"
	"trireme.dev/kit/rpc"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// restartTime is how long a watch waits for a gateway that has gone.
const restartTime = 15 * time.Second

// change is what a watch sees: the objects that were there at the beginning, together, and then one at a time.
type change struct {
	objects []client.Object
	deleted bool
	initial bool
}

// follow calls see with everything there is and then with every change, until ctx ends or see returns false or an
// error. A watch that the gateway ends in good order, or because this side was slow, goes on where it stopped.
func (c *cli) follow(ctx context.Context, k *kind.Kind, options client.WatchOptions, see func(change) (bool, error)) error {
	// What has been seen decides whether an event is the beginning again or something new.
	begun := false
	for {
		watch, err := c.resource(k).Watch(ctx, options)
		if err != nil {
			return err
		}
		revision, more, err := c.followOne(watch, &begun, see)
		watch.Close()
		switch {
		case err == nil && !more:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case begun && apierr.IsUnavailable(err):
			if !c.returns(ctx) {
				return err
			}
		case !errors.Is(err, io.EOF) && !apierr.IsConflict(err):
			return err
		}
		if begun && revision > 0 {
			options.ResourceVersion = strconv.FormatInt(revision, 10)
		}
	}
}

// returns waits a while for a gateway that is being restarted.
func (c *cli) returns(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, restartTime)
	defer cancel()
	return rpc.WaitServing(ctx, c.conn) == nil
}

func (c *cli) followOne(watch *client.Watch[client.Object], begun *bool, see func(change) (bool, error)) (revision int64, more bool, err error) {
	var initial []client.Object
	for {
		response, err := watch.Recv()
		if err != nil {
			return revision, true, err
		}
		for _, event := range response.Events {
			if !*begun {
				initial = append(initial, event.Object)
				continue
			}
			on, err := see(change{
				objects: []client.Object{event.Object},
				deleted: event.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED,
			})
			if err != nil || !on {
				return revision, false, err
			}
		}
		if response.InitialEventsEnd && !*begun {
			*begun = true
			if on, err := see(change{objects: initial, initial: true}); err != nil || !on {
				return revision, false, err
			}
		}
		if !response.More {
			revision = response.Revision
		}
	}
}

// optionsFor selects what a target stands for.
func optionsFor(s *selection, t target) client.WatchOptions {
	options := client.WatchOptions{Namespace: t.namespace, LabelSelector: s.labels, FieldSelector: s.fields}
	if t.name != "" {
		options.FieldSelector = "metadata.name=" + t.name
	}
	return options
}

// watchTargets prints what there is and then every change, each in a line or document of its own.
func (c *cli) watchTargets(ctx context.Context, f *getFlags, out *format, targets []target) error {
	if len(targets) != 1 {
		return usage("--watch follows one kind or one object, not several")
	}
	t := targets[0]
	layout := table.LayoutOf(t.kind, c.tableOptions(f, out, targets))
	printer := &rows{out: c.Out}
	header := !f.noHeaders
	return c.follow(ctx, t.kind, optionsFor(&f.selection, t), func(ch change) (bool, error) {
		if ch.initial {
			switch {
			case len(ch.objects) == 0 && t.name != "":
				return false, apierr.NotFound(t.kind.Name, t.kind.Key(t.namespace, t.name))
			case f.watchOnly:
				return true, nil
			case len(ch.objects) == 0 && (out.name == "" || out.name == "wide"):
				c.nothing(targets)
			}
		}
		if out.name != "" && out.name != "wide" {
			for _, o := range ch.objects {
				if out.name == "yaml" {
					c.print("---")
				}
				if err := c.printObjects(out, []located{{t.kind, o}}, true); err != nil {
					return false, err
				}
				if out.name == "jsonpath" {
					c.print("")
				}
			}
			return true, nil
		}
		if len(ch.objects) == 0 {
			return true, nil
		}
		var lines [][]string
		if header {
			lines, header = append(lines, layout.Header()), false
		}
		facts := c.facts(ctx, t.kind)
		for _, o := range ch.objects {
			lines = append(lines, layout.Row(facts, o))
		}
		return true, printer.write(lines...)
	})
}
