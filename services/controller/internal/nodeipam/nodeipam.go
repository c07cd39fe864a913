// Package nodeipam gives every node a range of addresses for its pods. It owns Node.spec.podCIDR and nothing else.
package nodeipam

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/client/reconcile"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// Controller reconciles nodes.
type Controller struct {
	nodes   *client.Resource[*corev1.Node]
	nodesIn *informer.Informer[*corev1.Node]
	events  *event.Recorder
	logger  *slog.Logger

	mu        sync.Mutex
	allocator *Allocator
	held      map[string]netip.Prefix // by node
}

// Deps are what the controller works with.
type Deps struct {
	Nodes     *client.Resource[*corev1.Node]
	Events    *event.Recorder
	Logger    *slog.Logger
	Allocator *Allocator
}

// New returns the runner of the controller, its informer taken from the factory.
func New(factory *informer.Factory, deps Deps) *reconcile.Runner {
	c := &Controller{
		nodes: deps.Nodes, events: deps.Events, logger: deps.Logger, allocator: deps.Allocator,
		nodesIn: informer.Of[*corev1.Node](factory, informer.Config{}), held: map[string]netip.Prefix{},
	}
	// One worker: ranges are given one at a time, after those of all nodes that have one are known.
	r := reconcile.New(reconcile.Config{
		Name: "nodeipam", Span: "syncNode", Workers: 1, Logger: deps.Logger,
		Inputs: []string{"Node"}, Outputs: []string{"Node/spec.podCIDR"},
	}, c)
	c.nodesIn.AddHandler(informer.Handler[*corev1.Node]{
		Add:    func(n *corev1.Node, _ bool) { c.occupy(n); r.Enqueue(reconcile.KeyOf(n)) },
		Update: func(_, n *corev1.Node) { c.occupy(n); r.Enqueue(reconcile.KeyOf(n)) },
		Delete: c.release,
	})
	return r
}

// occupy remembers the range that a node has.
func (c *Controller) occupy(node *corev1.Node) {
	name, cidr := node.GetMetadata().GetName(), node.GetSpec().GetPodCidr()
	if cidr == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	block, err := netip.ParsePrefix(cidr)
	if err == nil && c.held[name] != block {
		err = c.allocator.Occupy(block)
	}
	if err != nil {
		// It was given by another configuration, or by hand. Pods may use it, so it stays.
		c.logger.Warn("node has a pod CIDR that is not ours to give", slog.String("node", name), slog.Any("error", err))
		return
	}
	c.held[name] = block
}

func (c *Controller) release(node *corev1.Node) {
	name := node.GetMetadata().GetName()
	c.mu.Lock()
	defer c.mu.Unlock()
	if block, ok := c.held[name]; ok {
		c.allocator.Release(block)
		delete(c.held, name)
	}
}

// Reconcile gives a node a range if it has none.
func (c *Controller) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	node, ok := c.nodesIn.Lister().Get("", key.Name)
	if !ok || node.GetSpec().GetPodCidr() != "" || node.GetMetadata().GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	block, err := c.take(key.Name)
	if err != nil {
		c.events.Event(node, event.Warning, "CIDRNotAvailable", err.Error())
		return reconcile.Result{}, err
	}
	update := proto.CloneOf(node)
	if update.Spec == nil {
		update.Spec = &corev1.NodeSpec{}
	}
	update.Spec.PodCidr = proto.String(block.String())
	update.Spec.PodCidrs = []string{block.String()}
	_, err = c.nodes.Update(reconcile.Writing(ctx, node), update)
	switch {
	case err == nil:
		return reconcile.Result{}, nil
	case apierr.IsConflict(err):
		return reconcile.Result{After: 1}, nil // the informer is about to show another state of the node
	case apierr.IsNotFound(err):
		c.release(node)
		return reconcile.Result{}, nil
	default:
		return reconcile.Result{}, fmt.Errorf("give %s to node %s: %w", block, key.Name, err)
	}
}

// take returns the range that was chosen for a node before, or chooses one.
func (c *Controller) take(name string) (netip.Prefix, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if block, ok := c.held[name]; ok {
		return block, nil
	}
	block, err := c.allocator.Allocate()
	if err != nil {
		return netip.Prefix{}, err
	}
	c.held[name] = block
	return block, nil
}
