package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func (c *cli) runCommand() *cobra.Command {
	f := &creation{}
	var (
		image, restart, pull string
		env, labels          []string
		gpus                 int
		port                 int32
		command              bool
	)
	cmd := &cobra.Command{
		Use:   "run NAME --image IMAGE [--gpus N] [-- ARGS...]",
		Short: "Run a pod",
		Example: `  trireme run train --image example/train --gpus 2 -- --epochs 3
  trireme run shell --image busybox --restart Never --command -- sleep 1000`,
		Args: atLeast(1, "a name"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			if image == "" {
				return usage("--image is needed")
			}
			if gpus < 0 {
				return usage("--gpus %d: want a number from 0", gpus)
			}
			container := &corev1.Container{Name: args[0], Image: image}
			if command {
				container.Command = args[1:]
			} else {
				container.Args = args[1:]
			}
			if pull != "" {
				container.ImagePullPolicy = proto.String(pull)
			}
			if gpus > 0 {
				container.Resources = &corev1.ResourceRequirements{Limits: map[string]string{"nvidia.com/gpu": strconv.Itoa(gpus)}}
			}
			if port > 0 {
				container.Ports = []*corev1.ContainerPort{{ContainerPort: port}}
			}
			for _, e := range env {
				name, value, ok := strings.Cut(e, "=")
				if !ok || name == "" {
					return usage("--env %s: want NAME=VALUE", e)
				}
				container.Env = append(container.Env, &corev1.EnvVar{Name: name, Value: proto.String(value)})
			}
			meta := &metav1.ObjectMeta{Name: args[0], Namespace: c.ns(), Labels: map[string]string{"run": args[0]}}
			if len(labels) > 0 {
				changes, err := parseChanges(labels)
				if err != nil {
					return err
				}
				meta.Labels = changes.set
			}
			return c.create(ctx, f, c.made(&corev1.Pod{
				Metadata: meta,
				Spec:     &corev1.PodSpec{Containers: []*corev1.Container{container}, RestartPolicy: proto.String(restart)},
			}))
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&image, "image", "", "`image` to run")
	flags.IntVar(&gpus, "gpus", 0, "`number` of GPUs (nvidia.com/gpu)")
	flags.StringArrayVarP(&env, "env", "e", nil, "`NAME=VALUE` for the container's environment (repeatable)")
	flags.StringSliceVarP(&labels, "labels", "l", nil, "`KEY=VALUE` labels of the pod (default run=NAME)")
	flags.StringVar(&restart, "restart", "Always", "`policy`: Always, OnFailure, Never")
	flags.StringVar(&pull, "image-pull-policy", "", "`policy`: Always, IfNotPresent, Never")
	flags.Int32Var(&port, "port", 0, "`port` that the container listens on")
	flags.BoolVar(&command, "command", false, "what follows -- replaces the image's entrypoint, not only its arguments")
	f.addFlags(c, cmd)
	c.completeWords(cmd, "restart", "Always", "OnFailure", "Never")
	return cmd
}
