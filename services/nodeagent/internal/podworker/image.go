package podworker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"trireme.dev/client/event"
	"trireme.dev/client/tracing"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// puller pulls each image once however many containers wait for it.
type puller struct {
	images runtime.Images
	group  singleflight.Group
	// ctx of pulls: one pod's end must not end another's pull.
	ctx context.Context
}

func newPuller(images runtime.Images) *puller { return &puller{images: images} }

func (p *puller) pull(ctx context.Context, ref string) (*runtime.Image, error) {
	done := p.group.DoChan(ref, func() (any, error) { return p.images.Pull(p.ctx, ref) })
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-done:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*runtime.Image), nil
	}
}

// policy is when a container's image is pulled: as it says, or by the image's tag.
func policy(c *corev1.Container) string {
	if p := c.GetImagePullPolicy(); p != "" {
		return p
	}
	ref := c.GetImage()
	if strings.Contains(ref, "@") {
		return "IfNotPresent"
	}
	name := ref[strings.LastIndexByte(ref, '/')+1:]
	if _, tag, ok := strings.Cut(name, ":"); ok && tag != "latest" {
		return "IfNotPresent"
	}
	return "Always"
}

// ensureImage makes sure that a container's image is present.
func (w *worker) ensureImage(ctx context.Context, pod *corev1.Pod, c *corev1.Container) error {
	ref, events := c.GetImage(), w.m.deps.Events
	if p := policy(c); p != "Always" {
		_, err := w.m.images.images.Get(ctx, ref)
		switch {
		case err == nil:
			events.Event(pod, event.Normal, "Pulled", fmt.Sprintf("Container image %q already present on machine", ref))
			return nil
		case !errors.Is(err, runtime.ErrNotFound):
			return &waitError{reason: "ImageInspectError", err: fmt.Errorf("failed to inspect image %q: %w", ref, err)}
		case p == "Never":
			text := fmt.Sprintf("Container image %q is not present with pull policy of Never", ref)
			events.Event(pod, event.Warning, "ErrImageNeverPull", text)
			return &waitError{reason: "ErrImageNeverPull", err: errors.New(text)}
		}
	}
	events.Event(pod, event.Normal, "Pulling", fmt.Sprintf("Pulling image %q", ref))
	begin := time.Now()
	var image *runtime.Image
	err := within(ctx, pullSpan, func(ctx context.Context) (err error) {
		image, err = w.m.images.pull(ctx, ref)
		return err
	}, tracing.KeyImage.String(ref))
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		text := fmt.Sprintf("Failed to pull image %q: %v", ref, err)
		events.Event(pod, event.Warning, "Failed", text)
		return &waitError{reason: "ErrImagePull", err: err}
	}
	took := time.Since(begin).Round(time.Millisecond)
	events.Event(pod, event.Normal, "Pulled", fmt.Sprintf(
		"Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", ref, took, took, image.SizeBytes))
	return nil
}
