package intake

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/informer"
	"trireme.dev/client/selector"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
	"trireme.dev/services/scheduler/framework"
)

// kindOf is what the scheduler does with a kind.
type kindOf struct {
	name string
	new  func() client.Object
	// lister of a copy and of a factory's informer, for plugins; nil where they may not ask for the kind.
	ofCopy    func(*Copy) any
	ofFactory func(*informer.Factory) any
	// watch has an Intake hear of changes.
	watch func(*Intake, *informer.Factory)
	// silent: its changes concern nobody who waits. Those of Service and ReplicaSet, from which pods get only wishes by default,
	// and those of disruption budgets, which preemption can do without, are of use to a copy alone.
	silent bool
}

// kinds that the scheduler hears of. Changes of a kind wake whom they concern.
var kinds = []kindOf{
	listed[*corev1.Namespace](false), listed[*corev1.Service](true), listed[*appsv1.ReplicaSet](true),
	listed[*corev1.PersistentVolumeClaim](false), listed[*corev1.PersistentVolume](false),
	listed[*storagev1.StorageClass](false), listed[*storagev1.CSINode](false), listed[*policyv1.PodDisruptionBudget](true),
	listed[*schedulingv1.PodGroup](false), watched[*schedulingv1.Queue](), watched[*corev1.Node](), watched[*corev1.Pod](),
}

// listed is a kind that plugins may ask for.
func listed[T client.Object](silent bool) kindOf {
	k := watched[T]()
	k.silent = silent
	k.ofCopy = func(c *Copy) any { return copyOf[T]{c, k.name} }
	k.ofFactory = func(f *informer.Factory) any { return informer.Of[T](f, informer.Config{}).Lister() }
	return k
}

func watched[T client.Object]() kindOf {
	var zero T
	message := zero.ProtoReflect().Type()
	return kindOf{
		name: string(message.Descriptor().Name()),
		new:  func() client.Object { return message.New().Interface().(client.Object) },
		watch: func(in *Intake, f *informer.Factory) {
			registration := informer.Of[T](f, informer.Config{}).AddHandler(informer.Handler[T]{
				Add:    func(o T, initial bool) { in.Change(nil, o, initial) },
				Update: func(old, o T) { in.Change(old, o, false) },
				Delete: func(o T) { in.Change(o, nil, false) },
			})
			if pods, ok := any(registration).(*informer.Registration[*corev1.Pod]); ok {
				in.pods = pods
			}
		},
	}
}

// New returns an empty object of a kind that the scheduler hears of; false where it is none.
func New(kind string) (client.Object, bool) {
	i := slices.IndexFunc(kinds, func(k kindOf) bool { return k.name == kind })
	if i < 0 {
		return nil, false
	}
	return kinds[i].new(), true
}

func nameOf(o client.Object) string { return string(o.ProtoReflect().Descriptor().Name()) }

// Objects returns the listers that plugins may ask for, by kind.
func Objects(f *informer.Factory) map[string]any {
	out := map[string]any{}
	for _, k := range kinds {
		if k.ofFactory != nil {
			out[k.name] = k.ofFactory(f)
		}
	}
	return out
}

// Copy holds the objects that plugins may ask for as of the step under way, where steps are recorded: informers' own
// copies run ahead of what the scheduler has been told. Make it with NewCopy.
type Copy struct {
	mu      sync.RWMutex
	objects map[string][]client.Object // by kind, in the order of namespace and name
}

// NewCopy returns an empty one.
func NewCopy() *Copy {
	c := &Copy{objects: make(map[string][]client.Object)}
	for _, k := range kinds {
		if k.ofCopy != nil {
			c.objects[k.name] = nil
		}
	}
	return c
}

// Objects returns the listers, by kind.
func (c *Copy) Objects() map[string]any {
	out := map[string]any{}
	for _, k := range kinds {
		if k.ofCopy != nil {
			out[k.name] = k.ofCopy(c)
		}
	}
	return out
}

// set takes over an object of a kind that it holds, or forgets it. Readers may have the list as it was.
func (c *Copy) set(kind string, o client.Object, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, ok := c.objects[kind]
	if !ok {
		return
	}
	list = slices.Clone(list)
	meta := o.GetMetadata()
	i, found := find(list, meta.GetNamespace(), meta.GetName())
	switch {
	case gone && found:
		list = slices.Delete(list, i, i+1)
	case gone:
	case found:
		list[i] = o
	default:
		list = slices.Insert(list, i, o)
	}
	c.objects[kind] = list
}

func (c *Copy) list(kind string) []client.Object {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects[kind]
}

func find(list []client.Object, namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(o client.Object, name string) int {
		if c := strings.Compare(o.GetMetadata().GetNamespace(), namespace); c != 0 {
			return c
		}
		return strings.Compare(o.GetMetadata().GetName(), name)
	})
}

// copyOf implements framework.Lister.
type copyOf[T client.Object] struct {
	copy *Copy
	kind string
}

// Get implements framework.Lister.
func (c copyOf[T]) Get(namespace, name string) (T, bool) {
	list := c.copy.list(c.kind)
	if i, ok := find(list, namespace, name); ok {
		return list[i].(T), true
	}
	var none T
	return none, false
}

// List implements framework.Lister.
func (c copyOf[T]) List(namespace string, labels *selector.Labels) []T {
	var out []T
	for _, o := range c.copy.list(c.kind) {
		meta := o.GetMetadata()
		if (namespace == "" || meta.GetNamespace() == namespace) && (labels == nil || labels.Matches(meta.GetLabels())) {
			out = append(out, o.(T))
		}
	}
	return out
}

// moved has a change of a kind without fields of its own wake whom it concerns. Updates of the status alone count as well: of
// some kinds it is what matters.
func (in *Intake) moved(resource framework.EventResource, old, now client.Object) {
	action := framework.UpdateOther
	switch {
	case old == nil:
		action = framework.Add
	case now == nil:
		action = framework.Delete
	}
	in.Queue.Move(framework.Change{
		Event: framework.ClusterEvent{Resource: resource, Action: action}, Old: old, New: now,
	}, nil)
}

func (in *Intake) namespace(before, after *corev1.Namespace) {
	if after == nil {
		in.Cache.RemoveNamespace(before.GetMetadata().GetName())
		in.moved(framework.Namespace, before, nil)
		return
	}
	in.Cache.SetNamespace(after.GetMetadata().GetName(), after.GetMetadata().GetLabels())
	if before.GetMetadata().GetLabels()[framework.LabelQueue] != after.GetMetadata().GetLabels()[framework.LabelQueue] {
		in.Queue.Retag()
	}
	switch {
	case before == nil:
		in.moved(framework.Namespace, nil, after)
	case !proto.Equal(&corev1.Namespace{Metadata: before.GetMetadata()}, &corev1.Namespace{Metadata: after.GetMetadata()}):
		in.moved(framework.Namespace, before, after)
	}
}

func (in *Intake) queueObject(before, after *schedulingv1.Queue) {
	switch {
	case after == nil:
		in.Cache.RemoveQueue(before.GetMetadata().GetName())
		in.Queue.Retag()
		in.moved(framework.QueueObject, before, nil)
		return
	case before != nil && proto.Equal(before.GetSpec(), after.GetSpec()):
		in.Cache.QueueStatus(after)
		return
	}
	in.Cache.SetQueue(after)
	in.Queue.Retag()
	if before == nil {
		in.moved(framework.QueueObject, nil, after)
		return
	}
	in.moved(framework.QueueObject, before, after)
}
