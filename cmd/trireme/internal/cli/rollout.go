package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/cmd/trireme/internal/cli/describe"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	restartedAt  = "kubectl.kubernetes.io/restartedAt"
	changeCause  = "kubernetes.io/change-cause"
	templateHash = "pod-template-hash"
)

func (c *cli) rolloutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollout", Short: "Follow, repeat and undo the rollouts of a Deployment",
		Args: exactly(0, "status, restart, history, undo, pause or resume"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var watch bool
	var timeout time.Duration
	status := c.rolloutVerb("status", "Wait until a rollout is done", func(ctx context.Context, d *appsv1.Deployment) error {
		return c.rolloutStatus(ctx, d, watch, timeout)
	})
	status.Flags().BoolVarP(&watch, "watch", "w", true, "wait until it is done; =false prints the state of now")
	status.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0 for as long as it takes")

	var revision int64
	history := c.rolloutVerb("history", "List the revisions of a Deployment", func(ctx context.Context, d *appsv1.Deployment) error {
		return c.rolloutHistory(ctx, d, revision)
	})
	history.Flags().Int64Var(&revision, "revision", 0, "print the pod template of this `revision`")

	var to int64
	undo := c.rolloutVerb("undo", "Go back to an earlier revision", func(ctx context.Context, d *appsv1.Deployment) error {
		return c.rolloutUndo(ctx, d, to)
	})
	undo.Flags().Int64Var(&to, "to-revision", 0, "`revision` to go back to (default: the one before)")

	cmd.AddCommand(status, history, undo,
		c.rolloutVerb("restart", "Replace all pods of a Deployment, as an update does", func(ctx context.Context, d *appsv1.Deployment) error {
			return c.rolloutPatch(ctx, d, "restarted", map[string]any{"template": map[string]any{"metadata": map[string]any{
				"annotations": map[string]any{restartedAt: time.Now().UTC().Format(time.RFC3339)},
			}}})
		}),
		c.rolloutVerb("pause", "Let changes of a Deployment have no effect for now", func(ctx context.Context, d *appsv1.Deployment) error {
			return c.rolloutPatch(ctx, d, "paused", map[string]any{"paused": true})
		}),
		c.rolloutVerb("resume", "Let changes of a Deployment have effect again", func(ctx context.Context, d *appsv1.Deployment) error {
			return c.rolloutPatch(ctx, d, "resumed", map[string]any{"paused": false})
		}),
	)
	return cmd
}

func (c *cli) rolloutVerb(verb, short string, do func(context.Context, *appsv1.Deployment) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " (deployment NAME... | deployment/NAME...)", Short: short, Args: atLeast(1, "deployments"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			targets, err := c.chosen(&selection{}, args, false)
			if err != nil {
				return err
			}
			found, errs := c.fetch(ctx, &selection{}, targets)
			for _, l := range found {
				d, ok := l.object.(*appsv1.Deployment)
				if !ok {
					errs = append(errs, fmt.Errorf("%s: only deployments have rollouts", l))
					continue
				}
				if err := do(ctx, d); err != nil {
					errs = append(errs, err)
				}
			}
			return c.failures(errs)
		}),
	}
	cmd.ValidArgsFunction = c.completeTargets
	return cmd
}

func (c *cli) rolloutPatch(ctx context.Context, d *appsv1.Deployment, done string, spec map[string]any) error {
	l := c.locate(d)
	if _, err := c.patch(ctx, l, map[string]any{"spec": spec}); err != nil {
		return err
	}
	c.print("%s %s", l, done)
	return nil
}

// locate puts an object of a known kind beside its kind.
func (c *cli) locate(o client.Object) located { return located{c.made(o).Kind, o} }

// rolloutState says in words how far a rollout is, and whether it is over.
func rolloutState(d *appsv1.Deployment) (text string, done bool, err error) {
	name, status, want := d.GetMetadata().GetName(), d.GetStatus(), d.GetSpec().GetReplicas()
	if d.GetMetadata().GetGeneration() > status.GetObservedGeneration() {
		return "Waiting for deployment spec update to be observed...", false, nil
	}
	for _, condition := range status.GetConditions() {
		if condition.GetType() == "Progressing" && condition.GetReason() == "ProgressDeadlineExceeded" {
			return "", false, fmt.Errorf("deployment %q exceeded its progress deadline; see `trireme describe deployment %s`", name, name)
		}
	}
	waiting := fmt.Sprintf("Waiting for deployment %q rollout to finish: ", name)
	switch updated := status.GetUpdatedReplicas(); {
	case updated < want:
		return waiting + fmt.Sprintf("%d out of %d new replicas have been updated...", updated, want), false, nil
	case status.GetReplicas() > updated:
		return waiting + fmt.Sprintf("%d old replicas are pending termination...", status.GetReplicas()-updated), false, nil
	case status.GetAvailableReplicas() < updated:
		return waiting + fmt.Sprintf("%d of %d updated replicas are available...", status.GetAvailableReplicas(), updated), false, nil
	}
	return fmt.Sprintf("deployment %q successfully rolled out", name), true, nil
}

func (c *cli) rolloutStatus(ctx context.Context, d *appsv1.Deployment, watch bool, timeout time.Duration) error {
	if !watch {
		text, _, err := rolloutState(d)
		if err == nil {
			c.print("%s", text)
		}
		return err
	}
	limited, cancel := bounded(ctx, timeout)
	defer cancel()
	l, last := c.locate(d), ""
	meta := d.GetMetadata()
	t := target{l.kind, meta.GetNamespace(), meta.GetName()}
	err := c.follow(limited, l.kind, optionsFor(&selection{}, t), func(ch change) (bool, error) {
		if ch.deleted || len(ch.objects) == 0 {
			return false, fmt.Errorf("%s was deleted meanwhile", l)
		}
		now, _ := ch.objects[0].(*appsv1.Deployment)
		text, done, err := rolloutState(now)
		if err != nil {
			return false, err
		}
		if text != last {
			c.print("%s", text)
			last = text
		}
		return !done, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%s has not rolled out within %s: %s", l, timeout, last)
	}
	return err
}

// revisionOf reads the number that the Deployment controller gave a ReplicaSet; 0 where there is none.
func revisionOf(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.GetMetadata().GetAnnotations()[describe.Revision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// revisions are the ReplicaSets of a Deployment that have a revision, oldest first.
func (c *cli) revisions(ctx context.Context, d *appsv1.Deployment) ([]*appsv1.ReplicaSet, error) {
	sets, err := c.setsOf(ctx, d)
	if err != nil {
		return nil, err
	}
	sets = slices.DeleteFunc(sets, func(rs *appsv1.ReplicaSet) bool { return revisionOf(rs) == 0 })
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revisionOf(a), revisionOf(b)) })
	return sets, nil
}

func (c *cli) rolloutHistory(ctx context.Context, d *appsv1.Deployment, revision int64) error {
	sets, err := c.revisions(ctx, d)
	if err != nil {
		return err
	}
	if revision > 0 {
		for _, rs := range sets {
			if revisionOf(rs) != revision {
				continue
			}
			c.print("%s with revision #%d", c.locate(d), revision)
			return describe.Template(c.Out, rs.GetSpec().GetTemplate())
		}
		return fmt.Errorf("%s has no revision %d", c.locate(d), revision)
	}
	if len(sets) == 0 {
		c.say("No rollout history found.")
		return nil
	}
	c.print("%s", c.locate(d))
	lines := [][]string{{"REVISION", "IMAGES", "CHANGE-CAUSE"}}
	for _, rs := range sets {
		cause := rs.GetMetadata().GetAnnotations()[changeCause]
		if cause == "" {
			cause = "<none>"
		}
		var images []string
		for _, container := range rs.GetSpec().GetTemplate().GetSpec().GetContainers() {
			images = append(images, container.GetImage())
		}
		lines = append(lines, []string{strconv.FormatInt(revisionOf(rs), 10), strings.Join(images, ","), cause})
	}
	return (&rows{out: c.Out}).write(lines...)
}

func (c *cli) rolloutUndo(ctx context.Context, d *appsv1.Deployment, to int64) error {
	sets, err := c.revisions(ctx, d)
	if err != nil {
		return err
	}
	l := c.locate(d)
	if d.GetSpec().GetPaused() {
		return fmt.Errorf("%s is paused: `trireme rollout resume %s` first", l, l)
	}
	var goal *appsv1.ReplicaSet
	for i, rs := range sets {
		if to > 0 && revisionOf(rs) == to || to == 0 && i == len(sets)-2 {
			goal = rs
		}
	}
	switch {
	case goal == nil && to > 0:
		return fmt.Errorf("%s has no revision %d; see `trireme rollout history %s`", l, to, l)
	case goal == nil:
		return fmt.Errorf("%s has no earlier revision", l)
	}
	template := proto.CloneOf(goal.GetSpec().GetTemplate())
	delete(template.GetMetadata().GetLabels(), templateHash)
	deployments := client.For[*appsv1.Deployment](c.conn).With(&metav1.WriteOptions{FieldManager: c.manager()}).
		OnWarning(func(w string) { c.warn("", w) })
	for try := 0; ; try++ {
		if proto.Equal(d.GetSpec().GetTemplate(), template) {
			c.print("%s skipped rollback (current template already matches revision %d)", l, revisionOf(goal))
			return nil
		}
		d.Spec.Template = template
		_, err := deployments.Update(ctx, d)
		if !apierr.IsConflict(err) || try == conflictRetries {
			if err == nil {
				c.print("%s rolled back", l)
			}
			return err
		}
		if d, err = deployments.Get(ctx, d.GetMetadata().GetNamespace(), d.GetMetadata().GetName()); err != nil {
			return err
		}
	}
}
