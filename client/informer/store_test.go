package informer

import (
	"testing"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// A gateway that sends again what was seen already must not take the copy back in time.
func TestOldEventsAreSkipped(t *testing.T) {
	const (
		modified = metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED
		gone     = metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED
	)
	object := func(version string) *corev1.Node {
		return &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n", Uid: "u", ResourceVersion: version}}
	}
	s := newStore[*corev1.Node]()
	s.replace(map[key]*corev1.Node{{name: "n"}: object("10")}, 20, true)
	for _, test := range []struct {
		event   metav1.WatchEventType
		version string
		heard   int
	}{
		{modified, "9", 0}, {modified, "10", 0}, {gone, "8", 0}, {modified, "21", 1}, {gone, "22", 1}, {gone, "22", 0},
	} {
		batch := s.apply([]client.Event[*corev1.Node]{{Type: test.event, Object: object(test.version)}}, 5)
		if len(batch) != test.heard {
			t.Errorf("%s at %s: %d notifications, want %d", test.event, test.version, len(batch), test.heard)
		}
	}
	if s.atRevision() != 20 {
		t.Errorf("the revision went back to %d", s.atRevision())
	}
}
