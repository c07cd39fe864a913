package waterfall

import (
	"fmt"
	"strings"

	"trireme.dev/client/tracing"
	"trireme.dev/cmd/trireme/internal/cli/trace"
)

// named is how many spans of the critical path are named.
const named = 4

// Summary says in a few lines how long it took and what for.
func Summary(t *trace.Trace) string {
	if len(t.Spans) == 0 {
		return ""
	}
	var b strings.Builder
	total := t.End.Sub(t.Start)
	switch {
	case t.Ready && !t.Running.IsZero():
		fmt.Fprintf(&b, "Running after %s, Ready after %s", Duration(t.Running.Sub(t.Start)), Duration(total))
	case t.Ready:
		fmt.Fprintf(&b, "Ready after %s", Duration(total))
	default:
		fmt.Fprintf(&b, "%s, as far as it is recorded", Duration(total))
	}
	fmt.Fprintf(&b, ", counted from the start of %s.\n", t.Spans[0].Title())

	var parts []string
	for i, s := range t.Shares() {
		if i == named {
			break
		}
		parts = append(parts, fmt.Sprintf("%s %s (%.0f%%)", spanName(s.Span), Duration(s.Time), 100*float64(s.Time)/float64(max(1, total))))
	}
	fmt.Fprintf(&b, "Most of it (*): %s.\n", strings.Join(parts, ", "))
	if w := t.LongestWait(); w != nil {
		where := ""
		if w.Span != nil {
			where = " in " + w.Span.Service
			if reason := w.Span.Attributes[string(tracing.KeyReason)]; reason != "" {
				where += ": " + strings.Join(strings.Fields(reason), " ")
			}
		}
		fmt.Fprintf(&b, "The wait that cost most: %s, %s%s.\n", spanName(w.Span), Duration(w.Time), where)
	}
	return b.String()
}

func spanName(s *trace.Span) string {
	if s == nil {
		return Unrecorded
	}
	return s.Title() + detail(s)
}
