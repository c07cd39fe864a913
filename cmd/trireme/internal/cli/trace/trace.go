// Package trace makes sense of a trace: which span follows from which, where the time went, what nobody recorded. It is
// pure: spans go in, findings come out. It never fetches a trace and never prints one; package waterfall draws it.
package trace

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"trireme.dev/client/tracing"
	"trireme.dev/cmd/trireme/internal/otlpjson"
)

const (
	// ReadySpan marks the moment in which a pod was first Ready.
	ReadySpan = "Ready"
	// statusSpan is a write of a pod's status; its phase is an attribute.
	statusSpan = "status write"
	// MinGap is the shortest time worth telling that nobody recorded.
	MinGap = 20 * time.Millisecond
)

// Span is a span as it is looked at here.
type Span struct {
	ID, Parent    string
	Name, Service string
	Start, End    time.Time
	// Attributes as text.
	Attributes map[string]string
	Links      []Link
	// Failed says that it ended in an error; Message is the error.
	Failed  bool
	Message string
}

// Link points to a span of another trace.
type Link struct{ Trace, Span string }

// Duration of the span.
func (s *Span) Duration() time.Duration { return s.End.Sub(s.Start) }

// Wait reports whether nothing was done in the span but waiting for one's turn.
func (s *Span) Wait() bool {
	return s.Name == tracing.DeliverySpan || strings.HasSuffix(s.Name, " wait")
}

// Title is the span's name for people: of a call, service and method without the package.
func (s *Span) Title() string {
	service, method, ok := strings.Cut(s.Name, "/")
	if !ok || strings.ContainsAny(s.Name, " ") {
		return s.Name
	}
	return service[strings.LastIndexByte(service, '.')+1:] + "/" + method
}

// FromOTLP reads spans as a query API answers them, in order of their starts. A span that came twice is one.
func FromOTLP(data *otlpjson.Data) []*Span {
	var out []*Span
	seen := map[string]bool{}
	if data == nil {
		return nil
	}
	for _, r := range data.ResourceSpans {
		service := ""
		for _, a := range r.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.Text()
			}
		}
		for _, scope := range r.ScopeSpans {
			for _, from := range scope.Spans {
				if seen[from.SpanID] {
					continue
				}
				seen[from.SpanID] = true
				out = append(out, span(service, &from))
			}
		}
	}
	sortSpans(out)
	return out
}

func span(service string, from *otlpjson.Span) *Span {
	s := &Span{
		ID: from.SpanID, Parent: from.ParentSpanID, Name: from.Name, Service: service,
		Start: time.Unix(0, int64(from.StartTimeUnixNano)), End: time.Unix(0, int64(from.EndTimeUnixNano)),
		Attributes: map[string]string{},
		Failed:     from.Status.Code == otlpjson.StatusError, Message: from.Status.Message,
	}
	if s.Parent == "0000000000000000" {
		s.Parent = ""
	}
	if s.End.Before(s.Start) {
		s.End = s.Start
	}
	for _, a := range from.Attributes {
		s.Attributes[a.Key] = a.Value.Text()
	}
	for _, l := range from.Links {
		s.Links = append(s.Links, Link{Trace: l.TraceID, Span: l.SpanID})
	}
	return s
}

// sortSpans orders by start; of those that start together, the longer first.
func sortSpans(spans []*Span) {
	slices.SortStableFunc(spans, func(a, b *Span) int {
		return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End), cmp.Compare(a.ID, b.ID))
	})
}

// Node is a span with what was started in it.
type Node struct {
	*Span

	Children []*Node
}

// Trace is what a trace says.
type Trace struct {
	// Spans in order of their starts.
	Spans []*Span
	// Roots are the spans without a parent, and those whose parent did not come.
	Roots []*Node
	// Missing is how many parents are named that did not come. One that has no span of its own here, because the trace
	// was begun by somebody else's program, is among them.
	Missing int
	// Start is when the first span began. End is when the pod was first Ready, otherwise when the last span ended.
	Start, End time.Time
	// Running is when the first status that said so was written; zero where none did.
	Running time.Time
	// Ready says that the pod was, and that End is when.
	Ready bool
	// Path is what End waited for, from Start to End without a hole.
	Path []Segment
	// Gaps are times between Start and End, of MinGap at least, that no span covers.
	Gaps []Gap
	// Linked are other traces that spans of this one point to.
	Linked []string
}

// Gap is a time.
type Gap struct{ Start, End time.Time }

// Duration of the gap.
func (g Gap) Duration() time.Duration { return g.End.Sub(g.Start) }

// Analyze looks at the spans of one trace.
func Analyze(spans []*Span) *Trace {
	t := &Trace{Spans: slices.Clone(spans)}
	if len(spans) == 0 {
		return t
	}
	sortSpans(t.Spans)
	t.Start = t.Spans[0].Start
	t.link()
	t.ends()
	t.Gaps = gaps(t.Spans, t.Start, t.End)
	t.Path = criticalPath(t.Spans, t.Start, t.End)
	return t
}

// link makes the tree.
func (t *Trace) link() {
	nodes := map[string]*Node{}
	for _, s := range t.Spans {
		nodes[s.ID] = &Node{Span: s}
	}
	missing := map[string]bool{}
	for _, s := range t.Spans {
		parent, ok := nodes[s.Parent]
		if !ok || parent.Span == s {
			t.Roots = append(t.Roots, nodes[s.ID])
			if s.Parent != "" && !ok {
				missing[s.Parent] = true
			}
		} else {
			parent.Children = append(parent.Children, nodes[s.ID])
		}
		for _, l := range s.Links {
			if !slices.Contains(t.Linked, l.Trace) {
				t.Linked = append(t.Linked, l.Trace)
			}
		}
	}
	t.Missing = len(missing)
}

// ends finds the moments that matter.
func (t *Trace) ends() {
	for _, s := range t.Spans {
		if s.Name == ReadySpan && (!t.Ready || s.End.Before(t.End)) {
			t.Ready, t.End = true, s.End
		}
		if s.Name == statusSpan && s.Attributes[string(tracing.KeyPhase)] == "Running" && (t.Running.IsZero() || s.End.Before(t.Running)) {
			t.Running = s.End
		}
	}
	if t.Ready {
		return
	}
	for _, s := range t.Spans {
		if s.End.After(t.End) {
			t.End = s.End
		}
	}
}

// gaps finds what is covered by no span; spans are in order of their starts.
func gaps(spans []*Span, start, end time.Time) []Gap {
	var out []Gap
	covered := start
	add := func(to time.Time) {
		if to.Sub(covered) >= MinGap {
			out = append(out, Gap{covered, to})
		}
	}
	for _, s := range spans {
		if s.Start.After(end) {
			break
		}
		if s.Start.After(covered) {
			add(s.Start)
		}
		if s.End.After(covered) {
			covered = s.End
		}
	}
	if covered.Before(end) {
		add(end)
	}
	return out
}
