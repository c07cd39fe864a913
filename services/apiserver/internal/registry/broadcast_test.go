package registry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Watchers with one filter are sent responses that were made once. They get what one with a filter of its own gets: each
// transition of the selector, in order, through a storm in which responses carry many events.
func TestWatchersWithOneFilterGetWhatOneAloneGets(t *testing.T) {
	e := newEnv(t)
	start := must[*client.List[*corev1.ConfigMap]](t)(e.maps.List(t.Context(), client.ListOptions{Limit: 1})).ResourceVersion
	selectors := slices.Concat(slices.Repeat([]string{"tier=a"}, 8), []string{"tier in (a)"})
	type result struct {
		watcher int
		events  []string
		err     error
	}
	results := make(chan result)
	for i, selector := range selectors {
		w, err := e.maps.Watch(t.Context(), client.WatchOptions{LabelSelector: selector, ResourceVersion: start})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			r := result{watcher: i}
			for done := false; !done && r.err == nil; {
				response, err := w.Recv()
				if err != nil {
					r.err = err
					break
				}
				for _, event := range response.Events {
					meta := event.Object.GetMetadata()
					r.events = append(r.events, fmt.Sprint(event.Type, " ", meta.GetName(), "@", meta.GetResourceVersion()))
					done = done || meta.GetName() == "last"
				}
			}
			results <- r
		}()
	}
	for i := range 40 {
		m := configMap(fmt.Sprint("m", i), "v")
		m.Metadata.Labels = map[string]string{"tier": "a"}
		m = must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), m))
		for round := range 10 {
			m.Metadata.Labels["tier"] = []string{"b", "a", "a"}[round%3]
			m.Data["k"] = fmt.Sprint(round)
			m = must[*corev1.ConfigMap](t)(e.maps.Update(t.Context(), m))
		}
	}
	last := configMap("last", "v")
	last.Metadata.Labels = map[string]string{"tier": "a"}
	must[*corev1.ConfigMap](t)(e.maps.Create(t.Context(), last))
	got := make([][]string, len(selectors))
	for range selectors {
		r := <-results
		if r.err != nil {
			t.Fatalf("watcher %d: %v", r.watcher, r.err)
		}
		got[r.watcher] = r.events
	}
	alone := got[len(got)-1]
	// Each map: created, then b, a, a three times and b: ten changes, all of which concern the selector.
	if want := 40*11 + 1; len(alone) != want {
		t.Errorf("%d events, want %d", len(alone), want)
	}
	deleted := 0
	for _, event := range alone {
		if strings.HasPrefix(event, metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED.String()) {
			deleted++
		}
	}
	if deleted != 40*4 {
		t.Errorf("%d left the selector, want %d", deleted, 40*4)
	}
	for i, events := range got[:len(got)-1] {
		if diff := cmp.Diff(alone, events); diff != "" {
			t.Errorf("watcher %d (-alone +together):\n%s", i, diff)
		}
	}
}
