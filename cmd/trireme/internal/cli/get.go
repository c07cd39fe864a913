package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"

	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	"trireme.dev/cmd/trireme/internal/cli/table"
)

type getFlags struct {
	selection

	output         string
	sortBy         string
	watch          bool
	watchOnly      bool
	noHeaders      bool
	showLabels     bool
	ignoreNotFound bool
	owners         bool
}

func (c *cli) getCommand() *cobra.Command {
	f := &getFlags{}
	cmd := &cobra.Command{
		Use:   "get (TYPE[,TYPE] [NAME...] | TYPE/NAME... | -f FILE)",
		Short: "List objects, or follow them with -w",
		Example: `  trireme get pods -o wide
  trireme get pods -l app=web -w
  trireme get deploy,rs
  trireme get all -A
  trireme get deploy web -o yaml
  trireme get pods -o jsonpath='{.items[*].spec.nodeName}'`,
		RunE: c.online(func(ctx context.Context, args []string) error { return c.get(ctx, f, args) }),
	}
	flags := cmd.Flags()
	c.addSelection(cmd, &f.selection)
	flags.StringVarP(&f.output, "output", "o", "", "`format`: "+formats)
	flags.BoolVarP(&f.watch, "watch", "w", false, "after listing, print every change until interrupted")
	flags.BoolVar(&f.watchOnly, "watch-only", false, "print every change without listing first")
	flags.BoolVar(&f.noHeaders, "no-headers", false, "print no header")
	flags.BoolVar(&f.showLabels, "show-labels", false, "print labels in the last column")
	flags.BoolVar(&f.ignoreNotFound, "ignore-not-found", false, "print nothing for an object that does not exist, instead of an error")
	flags.BoolVar(&f.owners, "show-managed-fields", false, "show who owns which field in -o yaml and json")
	flags.StringVar(&f.sortBy, "sort-by", "", "JSONPath `expression` of the value to sort by, such as .metadata.creationTimestamp")
	cmd.ValidArgsFunction = c.completeTargets
	c.completeWords(cmd, "output", "wide", "yaml", "json", "name", "jsonpath=")
	return cmd
}

// addSelection adds the flags by which objects are chosen.
func (c *cli) addSelection(cmd *cobra.Command, s *selection) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&s.files, "filename", "f", nil, "`FILE`, folder or - whose objects are meant (repeatable)")
	flags.BoolVarP(&s.recursive, "recursive", "R", false, "read the folders inside folders too")
	flags.StringVarP(&s.labels, "selector", "l", "", "label `selector`: app=web,tier in (a,b)")
	flags.StringVar(&s.fields, "field-selector", "", "field `selector`: spec.nodeName=n1,status.phase!=Failed")
	flags.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "in all namespaces")
}

func (c *cli) get(ctx context.Context, f *getFlags, args []string) error {
	out, err := parseFormat(f.output)
	if err != nil {
		return err
	}
	out.owners = f.owners
	targets, err := c.chosen(&f.selection, args, true)
	if err != nil {
		return err
	}
	if f.watch || f.watchOnly {
		return c.watchTargets(ctx, f, out, targets)
	}
	found, errs := c.fetch(ctx, &f.selection, targets)
	if f.ignoreNotFound {
		errs = slices.DeleteFunc(errs, apierr.IsNotFound)
	}
	if f.sortBy != "" {
		if err := sortBy(found, f.sortBy); err != nil {
			return err
		}
	}
	single := len(targets) == 1 && targets[0].name != ""
	isTable := out.name == "" || out.name == "wide"
	switch {
	case len(found) == 0 && (single || len(errs) > 0):
	case !isTable:
		err = c.printObjects(out, found, single)
	case len(found) == 0 && !f.ignoreNotFound:
		c.nothing(targets)
	default:
		err = c.printTables(ctx, found, c.tableOptions(f, out, targets), !f.noHeaders)
	}
	if err != nil {
		errs = append(errs, err)
	}
	return c.failures(errs)
}

func (c *cli) tableOptions(f *getFlags, out *format, targets []target) table.Options {
	kinds := map[string]bool{}
	for _, t := range targets {
		kinds[t.kind.String()] = true
	}
	return table.Options{
		Wide: out.name == "wide", Namespace: f.allNamespaces, Labels: f.showLabels, Prefix: len(kinds) > 1,
	}
}

// nothing says that there is nothing, and where.
func (c *cli) nothing(targets []target) {
	namespace := ""
	for _, t := range targets {
		if t.namespace != "" {
			namespace = t.namespace
		}
	}
	if namespace == "" {
		c.say("No resources found")
		return
	}
	c.say("No resources found in %s namespace.", namespace)
}

// sortBy sorts objects by a value: numbers as numbers, everything else as text. Objects without it come first.
func sortBy(found []located, expression string) error {
	path, err := parsePath(expression)
	if err != nil {
		return usage("--sort-by %s: %w", expression, err)
	}
	keys := map[located]any{}
	for _, l := range found {
		if keys[l], err = sortKey(path, l); err != nil {
			return fmt.Errorf("--sort-by %s: %w", expression, err)
		}
	}
	slices.SortStableFunc(found, func(a, b located) int { return compare(keys[a], keys[b]) })
	return nil
}

func sortKey(path *jsonpath.JSONPath, l located) (any, error) {
	m, err := manifest.ToMap(l.object)
	if err != nil {
		return nil, err
	}
	results, err := path.FindResults(m)
	if err != nil {
		return nil, err
	}
	if len(results) == 0 || len(results[0]) == 0 {
		return nil, nil
	}
	switch value := results[0][0].Interface().(type) {
	case map[string]any, []any:
		return nil, errors.New("leads to more than one value")
	default:
		return value, nil
	}
}

func compare(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	x, xIs := number(a)
	y, yIs := number(b)
	if xIs && yIs {
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}
