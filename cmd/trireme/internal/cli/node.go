package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const nodeLeases = "kube-node-lease"

// nodeCommand gathers what concerns a node as a machine; others are commands that need no gateway.
func (c *cli) nodeCommand(others ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: "node", Short: "Let machines join the cluster and leave it", Args: exactly(0, "join or delete"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	leave := c.nodeDeleteCommand()
	c.addFlags(leave)
	cmd.AddCommand(append(others, leave)...)
	return cmd
}

type nodeDeleteFlags struct {
	force, now bool
	timeout    time.Duration
}

func (c *cli) nodeDeleteCommand() *cobra.Command {
	f := &nodeDeleteFlags{}
	cmd := &cobra.Command{
		Use:   "delete NODE...",
		Short: "Take nodes out of the cluster",
		Long: `Take nodes out of the cluster: the Node object, its lease, and the pods that are still on it.

A node whose agent is alive is refused unless --force is given: drain it and stop it there first (Ctrl-C in trireme node
join). With --force its pods are stopped before it goes. Of a node that is dead nobody can confirm that its pods have
ended: they are deleted at once, so do this when you know that the machine is off.

An agent whose node is deleted reports it no longer, and registers it again only when it is restarted. A machine that joined
needs a new token when its certificate, which is renewed no more, has ended.`,
		Example: `  trireme drain n1 && trireme node delete n1 --force
  trireme node delete n2     # n2 is off`,
		Args: atLeast(1, "the names of nodes"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			var errs []error
			for _, name := range args {
				if err := c.deleteNode(ctx, f, name); err != nil {
					errs = append(errs, err)
					continue
				}
				c.print("node/%s deleted", name)
			}
			return c.failures(errs)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.force, "force", false, "delete nodes that are alive too, having stopped their pods")
	flags.BoolVar(&f.now, "now", false, "with --force: do not wait until the pods have ended")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long to wait for the pods; 0 for as long as it takes")
	cmd.ValidArgsFunction = c.completeNodes
	return cmd
}

func (c *cli) deleteNode(ctx context.Context, f *nodeDeleteFlags, name string) error {
	found, errs := c.nodes(ctx, &selection{}, []string{name})
	if len(errs) > 0 {
		return errs[0]
	}
	heard, alive, err := c.nodeLease(ctx, name)
	if err != nil {
		return err
	}
	pods, err := c.podsOn(ctx, name, "")
	if err != nil {
		return err
	}
	if alive && !f.force {
		return fmt.Errorf("node %s is alive (heard of %s ago)%s: stop its agent there (Ctrl-C in `trireme node join`), or say --force",
			name, heard.Round(time.Second), onIt(pods, name))
	}
	// Nothing may come while we are at it.
	if node, _ := found[0].object.(*corev1.Node); !node.GetSpec().GetUnschedulable() {
		if err := c.cordon(ctx, found[0], true, dryRunNone); err != nil {
			return err
		}
	}
	if alive && !f.now {
		limited, cancel := bounded(ctx, f.timeout)
		defer cancel()
		if err := c.evictAll(limited, pods, &metav1.DeleteOptions{}, true, dryRunNone); err != nil {
			return fmt.Errorf("node %s stays, since its pods do (--now does not wait for them): %w", name, err)
		}
	} else if err := c.forget(ctx, pods); err != nil {
		return err
	}
	if _, err := c.resource(found[0].kind).Delete(ctx, "", name, &metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{Uid: proto.String(found[0].object.GetMetadata().GetUid())},
	}); err != nil && !apierr.IsNotFound(err) {
		return err
	}
	// The garbage collector would come for it too.
	if _, err := client.For[*coordinationv1.Lease](c.conn).Delete(ctx, nodeLeases, name, nil); err != nil && !apierr.IsNotFound(err) {
		return err
	}
	return nil
}

// onIt says how many pods are in the way.
func onIt(pods []*corev1.Pod, node string) string {
	if len(pods) == 0 {
		return ""
	}
	names := make([]string, 0, 3)
	for _, p := range pods[:min(len(pods), 3)] {
		names = append(names, podKey(p))
	}
	if len(pods) > len(names) {
		names = append(names, fmt.Sprintf("and %d more", len(pods)-len(names)))
	}
	return fmt.Sprintf(" and has pods (%s), which `trireme drain %s` moves away", strings.Join(names, ", "), node)
}

// nodeLease tells when a node's agent was last heard of, and whether that is recent enough for it to be alive.
func (c *cli) nodeLease(ctx context.Context, name string) (ago time.Duration, alive bool, err error) {
	lease, err := client.For[*coordinationv1.Lease](c.conn).Get(ctx, nodeLeases, name)
	if apierr.IsNotFound(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	ago = max(0, time.Since(lease.GetSpec().GetRenewTime().AsTime()))
	return ago, ago < time.Duration(lease.GetSpec().GetLeaseDurationSeconds())*time.Second, nil
}

// forget deletes pods at once, since nobody is there, or waited for, to confirm that they ended.
func (c *cli) forget(ctx context.Context, pods []*corev1.Pod) error {
	for _, p := range pods {
		meta := p.GetMetadata()
		_, err := client.For[*corev1.Pod](c.conn).Delete(ctx, meta.GetNamespace(), meta.GetName(), &metav1.DeleteOptions{
			GracePeriodSeconds: proto.Int64(0), Preconditions: &metav1.Preconditions{Uid: proto.String(meta.GetUid())},
		})
		if err != nil && !apierr.IsNotFound(err) && !apierr.IsConflict(err) {
			return fmt.Errorf("delete pod %s: %w", podKey(p), err)
		}
		c.print("pod %s deleted without waiting for its end", podKey(p))
	}
	return nil
}
