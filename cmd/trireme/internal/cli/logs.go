package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/selector"
	"trireme.dev/cmd/trireme/internal/cli/table"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// defaultContainer is the annotation that names the container meant where none is.
const defaultContainer = "kubectl.kubernetes.io/default-container"

type logsFlags struct {
	container, sinceTime         string
	follow, previous, timestamps bool
	all                          bool
	tail, limitBytes             int64
	since                        time.Duration
}

func (c *cli) logsCommand() *cobra.Command {
	f := &logsFlags{}
	cmd := &cobra.Command{
		Use:   "logs (POD | TYPE/NAME) [CONTAINER]",
		Short: "Print what a container wrote, or follow it with -f",
		Example: `  trireme logs web-1 -f
  trireme logs deploy/web --tail 20
  trireme logs web-1 -c sidecar --previous`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 || len(args) == 2 && f.container != "" {
				return usage("%s takes a pod and at most one container\nSee '%s --help'.", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		RunE: c.online(func(ctx context.Context, args []string) error {
			if len(args) == 2 {
				f.container = args[1]
			}
			return c.logs(ctx, f, args[0])
		}),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on until the container ends")
	flags.StringVarP(&f.container, "container", "c", "", "`name` of the container")
	flags.BoolVarP(&f.previous, "previous", "p", false, "of the run before the last restart")
	flags.Int64Var(&f.tail, "tail", -1, "only the last `N` lines; -1 for all")
	flags.DurationVar(&f.since, "since", 0, "only lines younger than this: 10s, 5m")
	flags.StringVar(&f.sinceTime, "since-time", "", "only lines written after this `time` (RFC 3339)")
	flags.BoolVar(&f.timestamps, "timestamps", false, "begin each line with the time at which it was written")
	flags.Int64Var(&f.limitBytes, "limit-bytes", 0, "at most so many `bytes`")
	flags.BoolVar(&f.all, "all-containers", false, "of all containers of the pod, one after the other")
	cmd.ValidArgsFunction = c.completePods
	return cmd
}

func (f *logsFlags) request(pod *corev1.Pod) (*corev1.LogsRequest, error) {
	r := &corev1.LogsRequest{
		Namespace: pod.GetMetadata().GetNamespace(), Name: pod.GetMetadata().GetName(),
		Follow: f.follow, Previous: f.previous, Timestamps: f.timestamps,
	}
	switch {
	case f.since != 0 && f.sinceTime != "":
		return nil, usage("--since and --since-time exclude each other")
	case f.since < 0:
		return nil, usage("--since %s: want a duration above zero", f.since)
	case f.since > 0:
		r.SinceSeconds = proto.Int64(int64(max(1, (f.since + time.Second - 1).Truncate(time.Second).Seconds())))
	case f.sinceTime != "":
		t, err := time.Parse(time.RFC3339, f.sinceTime)
		if err != nil {
			return nil, usage("--since-time %s: want a time such as %s", f.sinceTime, "2026-01-02T15:04:05Z")
		}
		r.SinceTime = timestamppb.New(t)
	}
	if f.tail >= 0 {
		r.TailLines = proto.Int64(f.tail)
	}
	if f.limitBytes > 0 {
		r.LimitBytes = proto.Int64(f.limitBytes)
	}
	return r, nil
}

func (c *cli) logs(ctx context.Context, f *logsFlags, arg string) error {
	pod, err := c.podOf(ctx, arg)
	if err != nil {
		return err
	}
	request, err := f.request(pod)
	if err != nil {
		return err
	}
	containers := []string{f.container}
	if f.all {
		if f.follow {
			return usage("--follow follows one container; --all-containers goes through all of them")
		}
		containers = allContainers(pod)
	} else if f.container == "" {
		containers[0] = c.containerOf(pod)
	}
	for _, name := range containers {
		request.Container = name
		if err := c.streamLog(ctx, request); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) streamLog(ctx context.Context, request *corev1.LogsRequest) error {
	stream, err := corev1.NewPodServiceClient(c.conn).Logs(ctx, request)
	if err != nil {
		return apierr.FromStatus(err)
	}
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return apierr.FromStatus(err)
		}
		if _, err := c.Out.Write(piece.GetData()); err != nil {
			return err
		}
	}
}

// podOf finds the pod that an argument means: a pod by name, or one of those of a Deployment or ReplicaSet.
func (c *cli) podOf(ctx context.Context, arg string) (*corev1.Pod, error) {
	word, name, typed := strings.Cut(arg, "/")
	pods := client.For[*corev1.Pod](c.conn)
	if !typed {
		return pods.Get(ctx, c.ns(), arg)
	}
	k, err := c.one(word)
	if err != nil {
		return nil, err
	}
	if k.Name == "Pod" {
		return pods.Get(ctx, c.ns(), name)
	}
	object, err := c.resource(k).Get(ctx, c.nsFor(k), name)
	if err != nil {
		return nil, err
	}
	var labels *metav1.LabelSelector
	switch o := object.(type) {
	case *appsv1.Deployment:
		labels = o.GetSpec().GetSelector()
	case *appsv1.ReplicaSet:
		labels = o.GetSpec().GetSelector()
	default:
		return nil, fmt.Errorf("a %s has no pods of its own; name a pod, a deployment or a replicaset", k.Name)
	}
	parsed, err := selector.FromLabelSelector(labels)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	list, err := pods.List(ctx, client.ListOptions{Namespace: c.ns(), LabelSelector: parsed.String()})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("%s has no pods now; see `trireme describe %s`", arg, arg)
	}
	// A running one tells more than one that waits.
	pod := slices.MaxFunc(list.Items, func(a, b *corev1.Pod) int { return table.SummaryOf(a).Ready - table.SummaryOf(b).Ready })
	if len(list.Items) > 1 {
		c.say("Found %d pods, using pod/%s", len(list.Items), pod.GetMetadata().GetName())
	}
	return pod, nil
}

// containerOf chooses the container meant where none is named, and says so where there was a choice.
func (c *cli) containerOf(pod *corev1.Pod) string {
	names := allContainers(pod)
	if name := pod.GetMetadata().GetAnnotations()[defaultContainer]; slices.Contains(names, name) {
		return name
	}
	containers := pod.GetSpec().GetContainers()
	if len(containers) == 0 {
		return ""
	}
	if len(names) > 1 {
		c.say("Defaulted container %q out of: %s", containers[0].GetName(), strings.Join(names, ", "))
	}
	return containers[0].GetName()
}

func allContainers(pod *corev1.Pod) []string {
	var names []string
	for _, container := range pod.GetSpec().GetContainers() {
		names = append(names, container.GetName())
	}
	for _, container := range pod.GetSpec().GetInitContainers() {
		names = append(names, container.GetName())
	}
	return names
}
