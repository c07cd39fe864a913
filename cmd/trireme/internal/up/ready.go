package up

import (
	"context"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client/informer"
	"trireme.dev/client/manifest"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// observer watches the cluster come up.
type observer struct {
	factory *informer.Factory
	nodes   *informer.Informer[*corev1.Node]
	pods    *informer.Informer[*corev1.Pod]
	// changed has room for one token: something has changed since it was last taken.
	changed chan struct{}
	// podsSince as in cluster.
	podsSince time.Time
}

func newObserver(conn grpc.ClientConnInterface, podsSince time.Time) *observer {
	o := &observer{
		podsSince: podsSince,
		// What it could say, this command says itself.
		factory: informer.NewFactory(conn, slog.New(slog.DiscardHandler)),
		changed: make(chan struct{}, 1),
	}
	o.watchNodes()
	o.pods = informer.Of[*corev1.Pod](o.factory, informer.Config{})
	o.pods.AddHandler(informer.Handler[*corev1.Pod]{
		Add:    func(*corev1.Pod, bool) { o.notify() },
		Update: func(_, _ *corev1.Pod) { o.notify() },
		Delete: func(*corev1.Pod) { o.notify() },
	})
	return o
}

// newNodeObserver watches nodes only.
func newNodeObserver(conn grpc.ClientConnInterface) *observer {
	o := &observer{factory: informer.NewFactory(conn, slog.New(slog.DiscardHandler)), changed: make(chan struct{}, 1)}
	o.watchNodes()
	return o
}

func (o *observer) watchNodes() {
	o.nodes = informer.Of[*corev1.Node](o.factory, informer.Config{})
	o.nodes.AddHandler(informer.Handler[*corev1.Node]{
		Add:    func(*corev1.Node, bool) { o.notify() },
		Update: func(_, _ *corev1.Node) { o.notify() },
		Delete: func(*corev1.Node) { o.notify() },
	})
}

func (o *observer) notify() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// wait returns once done says so, or with ctx's error.
func (o *observer) wait(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.changed:
		}
	}
	return nil
}

// readyNodes lists which of the names are nodes that have been Ready since start: what is stored of an earlier run
// tells nothing about this one.
func (o *observer) readyNodes(names []string, start time.Time) (ready, not []string) {
	for _, name := range names {
		node, ok := o.nodes.Lister().Get("", name)
		if ok && nodeReady(node, start) {
			ready = append(ready, name)
		} else {
			not = append(not, name)
		}
	}
	return ready, not
}

func nodeReady(n *corev1.Node, start time.Time) bool {
	for _, c := range n.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			// The API's times have whole seconds.
			return c.GetStatus() == "True" && !c.GetLastHeartbeatTime().AsTime().Before(start.Truncate(time.Second))
		}
	}
	return false
}

// expected is what a set of manifests brings about: pods by name, and numbers of pods by owner.
type expected struct {
	pods   map[string]bool // namespace/name
	owners []owner
}

type owner struct {
	namespace, kind, name string
	replicas              int
}

func expectedOf(docs []manifest.Document) expected {
	e := expected{pods: map[string]bool{}}
	for _, d := range docs {
		meta := d.Object.GetMetadata()
		switch obj := d.Object.(type) {
		case *appsv1.Deployment:
			e.owners = append(e.owners, owner{meta.GetNamespace(), d.Kind.Name, meta.GetName(), replicas(obj.GetSpec().Replicas)})
		case *appsv1.ReplicaSet:
			e.owners = append(e.owners, owner{meta.GetNamespace(), d.Kind.Name, meta.GetName(), replicas(obj.GetSpec().Replicas)})
		case *corev1.Pod:
			e.pods[d.Kind.Key(meta.GetNamespace(), meta.GetName())] = true
		}
	}
	return e
}

// replicas is the number that an owner runs, one where its manifest does not say.
func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// belongs reports whether a pod is one of those expected.
func (e expected) belongs(p *corev1.Pod) bool {
	if e.pods[podKey(p)] {
		return true
	}
	for _, o := range e.owners {
		if o.owns(p) {
			return true
		}
	}
	return false
}

func (o owner) owns(p *corev1.Pod) bool {
	if p.GetMetadata().GetNamespace() != o.namespace {
		return false
	}
	for _, ref := range p.GetMetadata().GetOwnerReferences() {
		if ref.GetKind() != "ReplicaSet" {
			continue
		}
		// A Deployment's sets are called after it, and after the hash of their template.
		if ref.GetName() == o.name || (o.kind == "Deployment" && strings.HasPrefix(ref.GetName(), o.name+"-")) {
			return true
		}
	}
	return false
}

// podsOf lists the pods that count: those expected, in order.
func (o *observer) podsOf(e expected) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range o.pods.Lister().List("", nil) {
		if e.belongs(p) {
			out = append(out, p)
		}
	}
	sort.Slice(out, func(i, j int) bool { return podKey(out[i]) < podKey(out[j]) })
	return out
}

// progressOf counts expected pods that run, and names those that do not with the reason.
func (o *observer) progressOf(e expected) (running int, waiting []string) {
	seen := map[string]bool{}
	perOwner := make([]int, len(e.owners))
	for _, p := range o.podsOf(e) {
		seen[podKey(p)] = true
		if podRuns(p, o.podsSince) || podDone(p) {
			running++
			for i, ow := range e.owners {
				if ow.owns(p) {
					perOwner[i]++
				}
			}
			continue
		}
		waiting = append(waiting, fmt.Sprintf("pod %s: %s", podKey(p), whyNot(p)))
	}
	for key := range e.pods {
		if !seen[key] {
			waiting = append(waiting, fmt.Sprintf("pod %s: does not exist", key))
		}
	}
	for i, ow := range e.owners {
		if perOwner[i] < ow.replicas {
			waiting = append(waiting, fmt.Sprintf("%s %s/%s: %d of %d pods run", ow.kind, ow.namespace, ow.name, perOwner[i], ow.replicas))
		}
	}
	sort.Strings(waiting)
	return running, waiting
}

func podKey(p *corev1.Pod) string {
	return p.GetMetadata().GetNamespace() + "/" + p.GetMetadata().GetName()
}

func podDone(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Succeeded" }

// podRuns reports whether a pod is Ready, with containers that were started since then.
func podRuns(p *corev1.Pod, since time.Time) bool {
	if p.GetStatus().GetPhase() != "Running" {
		return false
	}
	for _, c := range p.GetStatus().GetContainerStatuses() {
		// The API's times have whole seconds.
		if r := c.GetState().GetRunning(); r != nil && r.GetStartedAt().AsTime().Before(since.Truncate(time.Second)) {
			return false
		}
	}
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			return c.GetStatus() == "True"
		}
	}
	return false
}

// whyNot says in one line what a pod waits for.
func whyNot(p *corev1.Pod) string {
	for _, c := range p.GetStatus().GetContainerStatuses() {
		if w := c.GetState().GetWaiting(); w.GetReason() != "" {
			return strings.TrimSuffix(w.GetReason()+": "+w.GetMessage(), ": ")
		}
	}
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "PodScheduled" && c.GetStatus() == "False" {
			return strings.TrimSuffix(c.GetReason()+": "+c.GetMessage(), ": ")
		}
	}
	if phase := p.GetStatus().GetPhase(); phase != "" {
		return strings.TrimSuffix(phase+": "+p.GetStatus().GetMessage(), ": ")
	}
	return "no status yet"
}

// statusOf is a pod's state in a word, or what it waits for.
func (o *observer) statusOf(p *corev1.Pod) string {
	switch {
	case podDone(p):
		return "Completed"
	case podRuns(p, o.podsSince):
		return "Running"
	}
	return whyNot(p)
}

// devicesOf lists the devices that a pod was given, or what it asks for where its status does not say.
func devicesOf(p *corev1.Pod) string {
	given := map[string][]string{}
	for _, c := range p.GetStatus().GetContainerStatuses() {
		for _, r := range c.GetAllocatedResourcesStatus() {
			for _, d := range r.GetResources() {
				given[r.GetName()] = append(given[r.GetName()], d.GetResourceId())
			}
		}
	}
	var out []string
	for name, ids := range given {
		out = append(out, name+": "+strings.Join(ids, ","))
	}
	if len(out) == 0 {
		for _, c := range p.GetSpec().GetContainers() {
			for name, quantity := range c.GetResources().GetLimits() {
				if strings.Contains(name, "/") {
					out = append(out, name+": "+quantity)
				}
			}
		}
	}
	if len(out) == 0 {
		return "-"
	}
	sort.Strings(out)
	return strings.Join(out, "; ")
}
