package controller

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/client/kind"
	"trireme.dev/client/reconcile"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	"trireme.dev/services/controller/internal/deployment"
	"trireme.dev/services/controller/internal/disruption"
	"trireme.dev/services/controller/internal/garbage"
	"trireme.dev/services/controller/internal/namespace"
	"trireme.dev/services/controller/internal/nodeipam"
	"trireme.dev/services/controller/internal/replicaset"
	"trireme.dev/services/controller/internal/volumes"
)

// newControllers lists every controller of the process.
func newControllers(cfg Config, conn grpc.ClientConnInterface, factory *informer.Factory, events *event.Recorder, logger *slog.Logger) ([]*reconcile.Runner, error) {
	cluster, err := netip.ParsePrefix(cfg.ClusterCIDR)
	if err != nil {
		return nil, fmt.Errorf("--cluster-cidr: %w", err)
	}
	ranges, err := nodeipam.NewAllocator(cluster, cfg.NodeMask)
	if err != nil {
		return nil, err
	}
	var (
		kinds       = kind.Builtin()
		deployments = client.For[*appsv1.Deployment](conn)
		sets        = client.For[*appsv1.ReplicaSet](conn)
		pods        = client.For[*corev1.Pod](conn)
		nodes       = client.For[*corev1.Node](conn)
		budgets     = client.For[*policyv1.PodDisruptionBudget](conn)
		claims      = client.For[*corev1.PersistentVolumeClaim](conn)
		pvs         = client.For[*corev1.PersistentVolume](conn)
	)
	controllers := []*reconcile.Runner{
		deployment.New(factory, deployment.Deps{Deployments: deployments, Sets: sets, Events: events, Logger: logger}),
		replicaset.New(factory, replicaset.Deps{Sets: sets, Pods: pods, Events: events, Logger: logger}),
		nodeipam.New(factory, nodeipam.Deps{Nodes: nodes, Events: events, Logger: logger, Allocator: ranges}),
		disruption.New(factory, disruption.Deps{Budgets: budgets, Events: events, Logger: logger}),
		garbage.New(factory, conn, kinds, logger),
		namespace.New(factory, conn, kinds, logger),
	}
	controllers = append(controllers, volumes.New(factory, volumes.Deps{Claims: claims, Volumes: pvs, Events: events, Logger: logger})...)
	return controllers, exclusive(controllers)
}

// exclusive refuses two controllers that write the same thing: neither would ever come to rest. Outputs that begin with
// "shared" may have several owners.
func exclusive(controllers []*reconcile.Runner) error {
	owner := map[string]string{}
	for _, c := range controllers {
		for _, output := range c.Config().Outputs {
			if strings.HasPrefix(output, "shared") {
				continue
			}
			if other, ok := owner[output]; ok {
				return fmt.Errorf("controllers %s and %s both write %s", other, c.Config().Name, output)
			}
			owner[output] = c.Config().Name
		}
	}
	return nil
}
