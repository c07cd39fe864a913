package table

import (
	"fmt"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// EventTime is when an event happened last.
func EventTime(e *corev1.Event) time.Time {
	switch {
	case e.GetSeries().GetLastObservedTime() != nil:
		return e.GetSeries().GetLastObservedTime().AsTime()
	case e.GetLastTimestamp() != nil:
		return e.GetLastTimestamp().AsTime()
	case e.GetEventTime() != nil:
		return e.GetEventTime().AsTime()
	}
	return e.GetMetadata().GetCreationTimestamp().AsTime()
}

func firstTime(e *corev1.Event) time.Time {
	switch {
	case e.GetFirstTimestamp() != nil:
		return e.GetFirstTimestamp().AsTime()
	case e.GetEventTime() != nil:
		return e.GetEventTime().AsTime()
	}
	return EventTime(e)
}

// EventCount is how often an event happened.
func EventCount(e *corev1.Event) int {
	return max(1, int(e.GetCount()), int(e.GetSeries().GetCount()))
}

// EventAge is the age of an event: 5s, or 5s (x3 over 2m) where it repeats.
func EventAge(f *Facts, e *corev1.Event) string {
	age := Since(f.Now, EventTime(e))
	if n := EventCount(e); n > 1 {
		return fmt.Sprintf("%s (x%d over %s)", age, n, Since(f.Now, firstTime(e)))
	}
	return age
}

// EventSource is who reports an event: kubelet, n1.
func EventSource(e *corev1.Event) string {
	from := e.GetSource().GetComponent()
	if from == "" {
		from = e.GetReportingComponent()
	}
	if host := e.GetSource().GetHost(); host != "" {
		from += ", " + host
	}
	return orNone(from)
}
