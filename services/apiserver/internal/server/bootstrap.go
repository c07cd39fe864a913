package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/schema"
)

// bootstrapRetry is how long to wait for a store that does not answer yet.
const bootstrapRetry = 500 * time.Millisecond

// bootstrap creates what every cluster has, unless it is there. Several gateways may do so at once.
func (s *Server) bootstrap(ctx context.Context) error {
	for {
		err := s.ensureAll(ctx)
		if !apierr.IsUnavailable(err) {
			return err
		}
		s.logger.Warn("store does not answer yet", telemetry.KeyError, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(bootstrapRetry):
		}
	}
}

func (s *Server) ensureAll(ctx context.Context) error {
	type object struct {
		kind string
		obj  registry.Object
	}
	var objects []object
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		objects = append(objects, object{"Namespace", &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: name}}})
	}
	for name, value := range schema.SystemPriorities {
		objects = append(objects, object{"PriorityClass", &schedulingv1.PriorityClass{
			Metadata:    &metav1.ObjectMeta{Name: name},
			Value:       proto.Int32(value),
			Description: proto.String("Used for system critical pods."),
		}})
	}
	errs := make([]error, len(objects))
	var wg sync.WaitGroup
	for i, o := range objects {
		// Side by side: each waits for the disk.
		wg.Go(func() {
			if err := s.registry.Ensure(ctx, o.kind, o.obj); err != nil {
				errs[i] = fmt.Errorf("create %s %s: %w", o.kind, o.obj.GetMetadata().GetName(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
