package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"

	"trireme.dev/client"
	"trireme.dev/client/manifest"
)

func (c *cli) waitCommand() *cobra.Command {
	var s selection
	var what string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait (TYPE NAME... | TYPE/NAME... | TYPE -l SELECTOR | TYPE --all | -f FILE) --for CONDITION",
		Short: "Wait until objects are in a state",
		Example: `  trireme wait pod/web-1 --for condition=Ready
  trireme wait pods -l app=web --for condition=Ready --timeout 60s
  trireme wait pod/web-1 --for delete
  trireme wait pod/job --for jsonpath='{.status.phase}'=Succeeded`,
		RunE: c.online(func(ctx context.Context, args []string) error {
			w, err := parseWait(what)
			if err != nil {
				return err
			}
			targets, err := c.chosen(&s, args, false)
			if err != nil {
				return err
			}
			return c.wait(ctx, &s, targets, w, timeout)
		}),
	}
	c.addSelection(cmd, &s)
	cmd.Flags().BoolVar(&s.all, "all", false, "all objects of the kind in the namespace")
	cmd.Flags().StringVar(&what, "for", "", "`state`: create, delete, condition=TYPE[=STATUS], jsonpath={PATH}[=VALUE]")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait; 0 looks once, below 0 waits for as long as it takes")
	cmd.ValidArgsFunction = c.completeTargets
	c.completeWords(cmd, "for", "create", "delete", "condition=Ready", "condition=Available", "jsonpath=")
	return cmd
}

// waiting is a state to wait for.
type waiting struct {
	deleted, created bool
	condition, value string // of a condition; value of a jsonpath too
	path             *jsonpath.JSONPath
}

func parseWait(text string) (*waiting, error) {
	name, rest, _ := strings.Cut(text, "=")
	switch {
	case text == "":
		return nil, usage("--for is needed: condition=Ready, delete, create or jsonpath={.status.phase}=Running")
	case text == "delete":
		return &waiting{deleted: true}, nil
	case text == "create":
		return &waiting{created: true}, nil
	case name == "condition" && rest != "":
		condition, value, has := strings.Cut(rest, "=")
		if !has {
			value = "true"
		}
		return &waiting{condition: condition, value: value}, nil
	case name == "jsonpath" && rest != "":
		template, value := rest, ""
		if end := strings.LastIndex(rest, "}"); end >= 0 && end+1 < len(rest) && rest[end+1] == '=' {
			template, value = rest[:end+1], rest[end+2:]
		} else if end < 0 {
			template, value, _ = strings.Cut(rest, "=")
		}
		path, err := parsePath(template)
		if err != nil {
			return nil, usage("--for %s: %w", text, err)
		}
		return &waiting{path: path, value: value}, nil
	}
	return nil, usage("--for %s: want create, delete, condition=TYPE[=STATUS] or jsonpath={PATH}[=VALUE]", text)
}

// holds reports whether an object is in the state.
func (w *waiting) holds(o client.Object) (bool, error) {
	if w.created {
		return true, nil
	}
	if w.deleted {
		return false, nil
	}
	m, err := manifest.ToMap(o)
	if err != nil {
		return false, err
	}
	if w.path != nil {
		results, err := w.path.FindResults(m)
		if err != nil {
			return false, fmt.Errorf("jsonpath: %w", err)
		}
		for _, found := range results {
			for _, value := range found {
				if w.value == "" || fmt.Sprint(value.Interface()) == w.value {
					return true, nil
				}
			}
		}
		return false, nil
	}
	status, _ := m["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		name, _ := condition["type"].(string)
		value, _ := condition["status"].(string)
		if strings.EqualFold(name, w.condition) {
			return strings.EqualFold(value, w.value), nil
		}
	}
	return false, nil
}

func (c *cli) wait(ctx context.Context, s *selection, targets []target, w *waiting, timeout time.Duration) error {
	limited, cancel := bounded(ctx, timeout)
	defer cancel()
	var all []target
	uids := map[target]string{}
	var errs []error
	for _, t := range targets {
		if t.name != "" {
			all = append(all, t)
			continue
		}
		found, failed := c.fetch(ctx, s, []target{t})
		errs = append(errs, failed...)
		for _, l := range found {
			meta := l.object.GetMetadata()
			one := target{t.kind, meta.GetNamespace(), meta.GetName()}
			uids[one] = meta.GetUid()
			all = append(all, one)
		}
	}
	if len(all) == 0 && len(errs) == 0 {
		if w.deleted {
			return nil // nothing is there: that is what was asked for
		}
		return errors.New("no matching resources found")
	}
	progress := c.progress()
	defer progress.clear()
	for _, t := range all {
		progress.show("waiting for %s", t)
		err := c.waitOne(limited, t, uids[t], w, timeout == 0)
		progress.clear()
		switch {
		case err == nil && w.deleted:
			c.print("%s deleted", t)
		case err == nil:
			c.print("%s condition met", t)
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			errs = append(errs, fmt.Errorf("timed out after %s waiting for %s; see `trireme describe %s`", timeout, t, t))
		default:
			errs = append(errs, err)
		}
	}
	return c.failures(errs)
}

// waitOne waits for one object. once says to look at it now and not wait.
func (c *cli) waitOne(ctx context.Context, t target, uid string, w *waiting, once bool) error {
	if w.deleted && !once {
		return c.gone(ctx, t, uid)
	}
	return c.follow(ctx, t.kind, optionsFor(&selection{}, t), func(ch change) (bool, error) {
		switch {
		case len(ch.objects) == 0:
			if once && w.deleted {
				return false, nil
			}
			if w.created && !once {
				return true, nil
			}
			return false, fmt.Errorf("%s does not exist", t)
		case ch.deleted:
			return false, fmt.Errorf("%s was deleted meanwhile", t)
		}
		ok, err := w.holds(ch.objects[0])
		if err == nil && !ok && once {
			err = fmt.Errorf("%s is not in that state", t)
		}
		return !ok, err
	})
}
