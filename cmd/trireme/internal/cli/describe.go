package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	"trireme.dev/client/selector"
	"trireme.dev/cmd/trireme/internal/cli/describe"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func (c *cli) describeCommand() *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:     "describe (TYPE [NAME...] | TYPE/NAME... | -f FILE)",
		Short:   "Print all there is to know about objects, with what happened to them",
		Example: "  trireme describe pod web-1\n  trireme describe nodes\n  trireme describe deploy/web",
		RunE: c.online(func(ctx context.Context, args []string) error {
			targets, err := c.chosen(&s, args, true)
			if err != nil {
				return err
			}
			targets, err = c.prefixed(ctx, targets)
			if err != nil {
				return err
			}
			found, errs := c.fetch(ctx, &s, targets)
			if len(found) == 0 && len(errs) == 0 {
				c.nothing(targets)
			}
			for i, l := range found {
				if i > 0 {
					c.print("\n")
				}
				if err := c.describe(ctx, l); err != nil {
					errs = append(errs, err)
				}
			}
			return c.failures(errs)
		}),
	}
	c.addSelection(cmd, &s)
	cmd.ValidArgsFunction = c.completeTargets
	return cmd
}

// prefixed replaces a name that no object has by those that begin with it: describe pod web shows web-1 and web-2.
func (c *cli) prefixed(ctx context.Context, targets []target) ([]target, error) {
	var found []target
	for _, t := range targets {
		if t.name == "" {
			found = append(found, t)
			continue
		}
		list, err := c.resource(t.kind).List(ctx, client.ListOptions{Namespace: t.namespace})
		if err != nil {
			return nil, err
		}
		var matches []target
		for _, o := range list.Items {
			name := o.GetMetadata().GetName()
			if name == t.name {
				matches = nil
				break
			}
			if strings.HasPrefix(name, t.name) {
				matches = append(matches, target{t.kind, t.namespace, name})
			}
		}
		if matches == nil {
			matches = []target{t} // itself, or the error that it is not there
		}
		found = append(found, matches...)
	}
	return found, nil
}

func (c *cli) describe(ctx context.Context, l located) error {
	subject := &describe.Subject{Kind: l.kind, Object: l.object, Now: time.Now()}
	var err error
	if subject.Events, err = c.eventsAbout(ctx, l.kind, l.object.GetMetadata()); err != nil {
		return err
	}
	switch o := l.object.(type) {
	case *corev1.Node:
		pods, err := client.For[*corev1.Pod](c.conn).List(ctx, client.ListOptions{FieldSelector: "spec.nodeName=" + o.GetMetadata().GetName()})
		if err != nil {
			return err
		}
		subject.Pods = pods.Items
	case *appsv1.Deployment:
		if subject.ReplicaSets, err = c.setsOf(ctx, o); err != nil {
			return err
		}
	}
	return describe.Write(c.Out, subject)
}

// eventsAbout lists what happened to an object, and not to an earlier pod of its name. Other kinds come back as what they
// were, and a node's events may carry its name for an identity.
func (c *cli) eventsAbout(ctx context.Context, k *kind.Kind, meta *metav1.ObjectMeta) ([]*corev1.Event, error) {
	events, err := client.For[*corev1.Event](c.conn).List(ctx, client.ListOptions{
		Namespace:     meta.GetNamespace(),
		FieldSelector: fmt.Sprintf("involvedObject.kind=%s,involvedObject.name=%s", k.Name, meta.GetName()),
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(events.Items, func(e *corev1.Event) bool {
		uid := e.GetInvolvedObject().GetUid()
		return k.Name == "Pod" && uid != "" && uid != meta.GetUid()
	}), nil
}

// setsOf lists the ReplicaSets that a Deployment owns.
func (c *cli) setsOf(ctx context.Context, d *appsv1.Deployment) ([]*appsv1.ReplicaSet, error) {
	labels, err := selector.FromLabelSelector(d.GetSpec().GetSelector())
	if err != nil {
		return nil, err
	}
	list, err := client.For[*appsv1.ReplicaSet](c.conn).List(ctx, client.ListOptions{
		Namespace: d.GetMetadata().GetNamespace(), LabelSelector: labels.String(),
	})
	if err != nil {
		return nil, err
	}
	var owned []*appsv1.ReplicaSet
	for _, rs := range list.Items {
		for _, owner := range rs.GetMetadata().GetOwnerReferences() {
			if owner.GetController() && owner.GetUid() == d.GetMetadata().GetUid() {
				owned = append(owned, rs)
			}
		}
	}
	return owned, nil
}
