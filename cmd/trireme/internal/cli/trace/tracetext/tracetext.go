// Package tracetext writes traces as lines, for the tests of what looks at them.
package tracetext

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"trireme.dev/cmd/trireme/internal/cli/trace"
)

// Epoch is when the traces begin.
var Epoch = time.Unix(1_000_000_000, 0)

// Parse reads one span a line: ID PARENT SERVICE NAME START END [KEY=VALUE]..., times in milliseconds, "-" for no
// parent, "_" for a space in names and values. error=TEXT is the error of a span, link=TRACE a link. Spans of one trace
// in any order.
func Parse(t testing.TB, text string) []*trace.Span {
	t.Helper()
	var out []*trace.Span
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		if len(f) < 6 {
			t.Fatalf("%q: want ID PARENT SERVICE NAME START END", line)
		}
		at := func(ms string) time.Time {
			n, err := strconv.ParseFloat(ms, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return Epoch.Add(time.Duration(n * float64(time.Millisecond)))
		}
		s := &trace.Span{ID: f[0], Parent: strings.TrimPrefix(f[1], "-"), Service: f[2], Name: words(f[3]), Start: at(f[4]), End: at(f[5])}
		for _, kv := range f[6:] {
			key, value, _ := strings.Cut(kv, "=")
			switch key {
			case "error":
				s.Failed, s.Message = true, words(value)
			case "link":
				s.Links = append(s.Links, trace.Link{Trace: value})
			default:
				if s.Attributes == nil {
					s.Attributes = map[string]string{}
				}
				s.Attributes[key] = words(value)
			}
		}
		out = append(out, s)
	}
	return out
}

func words(text string) string { return strings.ReplaceAll(text, "_", " ") }
