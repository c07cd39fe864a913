package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	// evictAgain is the pause before an eviction that may not be now is tried again, unless the gateway says how long.
	evictAgain = 5 * time.Second
	// evictions at a time.
	evictions = 32
)

// errStays is about a pod that did not go in time.
var errStays = errors.New("is still there")

type drainFlags struct {
	selection
	drainRules

	podSelector     string
	grace           int64
	timeout         time.Duration
	skipDeleted     int
	disableEviction bool
	dryRun          string
}

func (c *cli) drainCommand() *cobra.Command {
	f := &drainFlags{}
	cmd := &cobra.Command{
		Use:   "drain (NODE... | -l SELECTOR)",
		Short: "Keep new pods away from nodes and move those away that are there",
		Long: `Keep new pods away from nodes (as cordon does), evict the pods that are there, and wait until they are gone. Their controllers
make them anew elsewhere. Pods that would be lost are not touched unless a flag allows it; then nothing is evicted at all, and
the nodes stay cordoned; ` + "`trireme uncordon`" + ` lets pods come again.`,
		Example: `  trireme drain n1
  trireme drain n1 --force --delete-emptydir-data --timeout 5m
  trireme drain -l rack=7 --dry-run`,
		RunE: c.online(func(ctx context.Context, args []string) error { return c.drain(ctx, f, args) }),
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.labels, "selector", "l", "", "label `selector` of nodes")
	flags.StringVar(&f.podSelector, "pod-selector", "", "label `selector`: only these pods are evicted")
	flags.BoolVar(&f.force, "force", false, "evict pods that no controller makes anew")
	flags.BoolVar(&f.deleteEmptyDir, "delete-emptydir-data", false, "evict pods with emptyDir volumes, whose data is lost")
	flags.BoolVar(&f.ignoreDaemonSets, "ignore-daemonsets", false, "leave pods of DaemonSets where they are")
	flags.Int64Var(&f.grace, "grace-period", -1, "`seconds` that containers get to end by themselves (default: what the pod says)")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long to try; 0 for as long as it takes")
	flags.IntVar(&f.skipDeleted, "skip-wait-for-delete-timeout", 0, "do not wait for pods that have been going for longer than `seconds`")
	flags.BoolVar(&f.disableEviction, "disable-eviction", false, "delete pods instead of evicting them, whatever stands against their eviction")
	addDryRun(cmd, &f.dryRun)
	cmd.ValidArgsFunction = c.completeNodes
	return cmd
}

func (c *cli) drain(ctx context.Context, f *drainFlags, args []string) error {
	if len(args) == 0 && f.labels == "" {
		return usage("name the nodes, or select them with -l")
	}
	dry, err := parseDryRun(f.dryRun)
	if err != nil {
		return err
	}
	if f.skipDeleted < 0 || f.timeout < 0 {
		return usage("--skip-wait-for-delete-timeout and --timeout: want 0 or more")
	}
	f.skipDeletedFor = time.Duration(f.skipDeleted) * time.Second
	found, errs := c.nodes(ctx, &f.selection, args)
	limited, cancel := bounded(ctx, f.timeout)
	defer cancel()
	// All are cordoned first: pods are not to move from one to the next.
	for _, l := range found {
		if err := c.cordon(limited, l, true, dry); err != nil {
			errs = append(errs, err)
		}
	}
	for _, l := range found {
		err := c.drainNode(limited, f, l, dry)
		if errors.Is(err, errStays) && ctx.Err() == nil {
			err = fmt.Errorf("%s is not drained after %s: %w", l, f.timeout, err)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.print("%s drained%s", l, dry)
	}
	return c.failures(errs)
}

// cordon marks a node, unless it is marked already.
func (c *cli) cordon(ctx context.Context, l located, cordon bool, dry dryRun) error {
	verb := "cordon"
	if !cordon {
		verb = "uncordon"
	}
	node, _ := l.object.(*corev1.Node)
	if node.GetSpec().GetUnschedulable() == cordon {
		c.print("%s already %sed%s", l, verb, dry)
		return nil
	}
	if dry != dryRunClient {
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordon)
		name := node.GetMetadata().GetName()
		if _, err := c.writer(l.kind, dry == dryRunServer).Patch(ctx, "", name, metav1.PatchType_PATCH_TYPE_MERGE, patch, ""); err != nil {
			return err
		}
	}
	c.print("%s %sed%s", l, verb, dry)
	return nil
}

// podsOn lists the pods of a node.
func (c *cli) podsOn(ctx context.Context, node, selector string) ([]*corev1.Pod, error) {
	list, err := client.For[*corev1.Pod](c.conn).List(ctx, client.ListOptions{
		LabelSelector: selector, FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (c *cli) drainNode(ctx context.Context, f *drainFlags, l located, dry dryRun) error {
	pods, err := c.podsOn(ctx, l.object.GetMetadata().GetName(), f.podSelector)
	if err != nil {
		return err
	}
	plan := planDrain(pods, f.drainRules, time.Now())
	if len(plan.refused) > 0 {
		return fmt.Errorf("%s stays cordoned and keeps its pods, some of which would be lost:\n  %s", l, strings.Join(plan.refused, "\n  "))
	}
	for _, w := range plan.warnings {
		c.warn("", w)
	}
	if len(plan.evict) > 0 {
		name := l.object.GetMetadata().GetName()
		if _, alive, err := c.nodeLease(ctx, name); err != nil {
			return err
		} else if !alive {
			c.warn("", fmt.Sprintf("node %s is not heard of, so nobody there can end its pods; if it is off, `trireme node delete %[1]s` forgets it and them", name))
		}
	}
	return c.evictAll(ctx, plan.evict, f.options(dry), f.disableEviction, dry)
}

func (f *drainFlags) options(dry dryRun) *metav1.DeleteOptions {
	o := &metav1.DeleteOptions{DryRun: dry == dryRunServer}
	if f.grace >= 0 {
		o.GracePeriodSeconds = proto.Int64(f.grace)
	}
	return o
}

// evictAll evicts pods side by side and waits until they are gone.
func (c *cli) evictAll(ctx context.Context, pods []*corev1.Pod, options *metav1.DeleteOptions, deleting bool, dry dryRun) error {
	var (
		mu    sync.Mutex // of the output and errs
		errs  []error
		wg    sync.WaitGroup
		slots = make(chan struct{}, evictions)
	)
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		c.print(format, args...)
	}
	for _, p := range pods {
		say("evicting pod %s%s", podKey(p), dry)
	}
	if dry == dryRunClient {
		return nil
	}
	for _, p := range pods {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			err := c.evict(ctx, p, options, deleting, say)
			if err == nil && dry == dryRunNone {
				k, _ := c.registry.Resolve("pods") // built in
				meta := p.GetMetadata()
				err = c.gone(ctx, target{k, meta.GetNamespace(), meta.GetName()}, meta.GetUid())
				if errors.Is(err, context.DeadlineExceeded) || apierr.IsTimeout(err) {
					err = fmt.Errorf("pod %s %w", podKey(p), errStays)
				} else if err == nil {
					say("pod/%s evicted", meta.GetName())
				}
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// evict evicts one pod, again and again while it may not go.
func (c *cli) evict(ctx context.Context, p *corev1.Pod, options *metav1.DeleteOptions, deleting bool, say func(string, ...any)) error {
	meta := p.GetMetadata()
	options = proto.CloneOf(options)
	options.Preconditions = &metav1.Preconditions{Uid: proto.String(meta.GetUid())}
	for {
		var err error
		if deleting {
			_, err = client.For[*corev1.Pod](c.conn).Delete(ctx, meta.GetNamespace(), meta.GetName(), options)
		} else {
			_, err = corev1.NewPodServiceClient(c.conn).Evict(ctx, &corev1.EvictRequest{
				Namespace: meta.GetNamespace(), Name: meta.GetName(), Options: options,
			})
			err = apierr.FromStatus(err)
		}
		var api *apierr.Error
		switch {
		case err == nil, apierr.IsNotFound(err), apierr.IsConflict(err): // another pod of the name is none of ours
			return nil
		case !errors.As(err, &api) || api.Reason != apierr.ReasonTooMany:
			return fmt.Errorf("evict pod %s: %w", podKey(p), err)
		}
		wait := api.RetryAfter
		if wait <= 0 {
			wait = evictAgain
		}
		say("pod %s may not go now (%v): trying again in %s", podKey(p), err, wait.Round(time.Second))
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("pod %s %w: %w", podKey(p), errStays, err)
		case <-timer.C:
		}
	}
}
