package informer_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trireme.dev/client"
	"trireme.dev/client/informer"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// view is a copy built from nothing but what a handler hears; it reports each thing that cannot be.
type view struct {
	mu      sync.Mutex
	objects map[string]*corev1.ConfigMap
	wrong   []string
}

func (v *view) handler() informer.Handler[*corev1.ConfigMap] {
	complain := func(format string, args ...any) { v.wrong = append(v.wrong, fmt.Sprintf(format, args...)) }
	return informer.Handler[*corev1.ConfigMap]{
		Add: func(o *corev1.ConfigMap, _ bool) {
			v.mu.Lock()
			defer v.mu.Unlock()
			name := o.GetMetadata().GetName()
			if v.objects[name] != nil {
				complain("add of %s, which was there", name)
			}
			v.objects[name] = o
		},
		Update: func(before, after *corev1.ConfigMap) {
			v.mu.Lock()
			defer v.mu.Unlock()
			name := after.GetMetadata().GetName()
			if v.objects[name] != before {
				complain("update of %s from a state that was never heard of", name)
			}
			if before.GetMetadata().GetResourceVersion() == after.GetMetadata().GetResourceVersion() {
				complain("update of %s to the same version", name)
			}
			v.objects[name] = after
		},
		Delete: func(last *corev1.ConfigMap) {
			v.mu.Lock()
			defer v.mu.Unlock()
			name := last.GetMetadata().GetName()
			if v.objects[name] == nil {
				complain("delete of %s, which was not there", name)
			}
			if v.objects[name].GetData()["v"] != last.GetData()["v"] {
				complain("delete of %s with a state that was not the last", name)
			}
			delete(v.objects, name)
		},
	}
}

func disturb(t *testing.T, w *world, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	v := &view{objects: map[string]*corev1.ConfigMap{}}
	w.informer.AddHandler(v.handler())
	w.start(t)
	some := func(value string) []client.Object {
		var objects []client.Object
		for _, i := range random.Perm(8)[:1+random.IntN(6)] {
			objects = append(objects, configMap(fmt.Sprint("o", i), value))
		}
		return objects
	}
	down := false
	for step := range 200 {
		switch random.IntN(12) {
		case 0:
			w.gateway.CutStreams()
		case 1:
			w.gateway.CutInside(random.IntN(3))
		case 2:
			if down {
				w.gateway.Up()
			} else {
				w.gateway.Down()
			}
			down = !down
		case 3:
			w.gateway.Compact()
		case 4, 5, 6:
			w.gateway.Remove(some("")...)
		default:
			w.gateway.Put(some(fmt.Sprint("step ", step))...)
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
	}
	w.gateway.CutInside(0)
	if down {
		w.gateway.Up()
	}
	settle()
	synctest.Wait()
	want := w.gateway.Objects(&corev1.ConfigMap{})
	stored := map[string]*corev1.ConfigMap{}
	for _, o := range w.informer.Lister().List("", nil) {
		stored[o.GetMetadata().GetName()] = o
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	sameObjects(t, "store", stored, want)
	sameObjects(t, "handler", v.objects, want)
	for _, complaint := range v.wrong {
		t.Error(complaint)
	}
}
