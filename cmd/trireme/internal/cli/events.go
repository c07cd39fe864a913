package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trireme.dev/client"
	"trireme.dev/cmd/trireme/internal/cli/table"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func (c *cli) eventsCommand() *cobra.Command {
	var s selection
	var about string
	var types []string
	var watch, noHeaders bool
	cmd := &cobra.Command{
		Use:     "events [--for TYPE/NAME] [-w]",
		Short:   "List what happened, oldest first, or follow it with -w",
		Example: "  trireme events --for pod/web-1 -w\n  trireme events -A --types Warning",
		Args:    exactly(0, "no arguments; --for names the object"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			var fields []string
			namespace := c.ns()
			if about != "" {
				targets, err := c.targets([]string{about})
				if err != nil {
					return err
				}
				if targets[0].name == "" {
					return usage("--for %s: want TYPE/NAME", about)
				}
				// Events of an object without namespace lie in one all the same.
				namespace = targets[0].namespace
				fields = append(fields, "involvedObject.kind="+targets[0].kind.Name, "involvedObject.name="+targets[0].name)
			}
			if len(types) == 1 {
				fields = append(fields, "type="+types[0])
			}
			if s.allNamespaces {
				namespace = ""
			}
			s.fields = strings.Join(fields, ",")
			return c.events(ctx, &s, namespace, types, watch, !noHeaders)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&about, "for", "", "only what happened to this `TYPE/NAME`")
	flags.StringSliceVar(&types, "types", nil, "only events of these `types`: Normal, Warning")
	flags.BoolVarP(&watch, "watch", "w", false, "after listing, print what happens until interrupted")
	flags.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "in all namespaces")
	flags.BoolVar(&noHeaders, "no-headers", false, "print no header")
	c.completeWords(cmd, "types", "Normal", "Warning")
	return cmd
}

func (c *cli) events(ctx context.Context, s *selection, namespace string, types []string, watch, header bool) error {
	k, err := c.one("events")
	if err != nil {
		return err
	}
	layout := table.LayoutOf(k, table.Options{Namespace: s.allNamespaces})
	printer := &rows{out: c.Out}
	t := target{kind: k, namespace: namespace}
	return c.follow(ctx, k, optionsFor(s, t), func(ch change) (bool, error) {
		var events []*corev1.Event
		for _, o := range ch.objects {
			e, ok := o.(*corev1.Event)
			if ok && !ch.deleted && (len(types) == 0 || slices.ContainsFunc(types, func(t string) bool { return strings.EqualFold(t, e.GetType()) })) {
				events = append(events, e)
			}
		}
		slices.SortStableFunc(events, func(a, b *corev1.Event) int { return table.EventTime(a).Compare(table.EventTime(b)) })
		if ch.initial && len(events) == 0 {
			in := ""
			if namespace != "" {
				in = fmt.Sprintf(" in %s namespace", namespace)
			}
			c.say("No events found%s.", in)
		}
		if len(events) == 0 {
			return watch, nil
		}
		var lines [][]string
		if header {
			lines, header = append(lines, layout.Header()), false
		}
		facts := &table.Facts{Now: time.Now()}
		for _, e := range events {
			lines = append(lines, layout.Row(facts, client.Object(e)))
		}
		return watch, printer.write(lines...)
	})
}
