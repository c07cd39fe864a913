package trace

import (
	"time"
)

// Document is a trace as `trireme trace -o json` prints it. Fields are added and never change their meaning; times are
// milliseconds since Start.
type Document struct {
	TraceID string `json:"traceId"`
	// Object is whose trace it is; absent where only the id was given.
	Object *Object `json:"object,omitempty"`
	// Start is when the first span began.
	Start time.Time `json:"start"`
	// TotalMs is until Ready, or until the end of the last span where Ready is not recorded.
	TotalMs   float64  `json:"totalMs"`
	RunningMs *float64 `json:"runningMs,omitempty"`
	ReadyMs   *float64 `json:"readyMs,omitempty"`
	// Spans in order of their starts.
	Spans []DocumentSpan `json:"spans"`
	// CriticalPath covers the time from 0 to TotalMs without a hole.
	CriticalPath []DocumentSegment `json:"criticalPath"`
	// LongestWait is the wait with most of the critical path; absent without any.
	LongestWait *DocumentSegment `json:"longestWait,omitempty"`
	// Gaps of 20 ms and more that no span covers.
	Gaps []DocumentGap `json:"gaps"`
	// MissingParents is how many spans are named as parents and did not come.
	MissingParents int `json:"missingParents"`
	// SpansDropped is how many spans the running services have lost, of whatever traces; absent where they do not say.
	SpansDropped *int64 `json:"spansDropped,omitempty"`
	// LinkedTraces are traces to which spans of this one point, LaterTraces those that point to this one.
	LinkedTraces []string `json:"linkedTraces"`
	LaterTraces  []string `json:"laterTraces"`
}

// Object names an object.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// DocumentSpan is a span.
type DocumentSpan struct {
	ID         string            `json:"id"`
	ParentID   string            `json:"parentId,omitempty"`
	Name       string            `json:"name"`
	Service    string            `json:"service"`
	StartMs    float64           `json:"startMs"`
	DurationMs float64           `json:"durationMs"`
	Wait       bool              `json:"wait,omitempty"`
	Error      string            `json:"error,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// DocumentSegment is a part of the critical path. SpanID, Name and Service are absent where nothing was recorded.
type DocumentSegment struct {
	SpanID     string  `json:"spanId,omitempty"`
	Name       string  `json:"name,omitempty"`
	Service    string  `json:"service,omitempty"`
	StartMs    float64 `json:"startMs"`
	DurationMs float64 `json:"durationMs"`
}

// DocumentGap is a time.
type DocumentGap struct {
	StartMs    float64 `json:"startMs"`
	DurationMs float64 `json:"durationMs"`
}

// Document writes down what is known of a trace.
func (t *Trace) Document(id string) *Document {
	d := &Document{
		TraceID: id, Start: t.Start.UTC(), TotalMs: ms(t.End.Sub(t.Start)), MissingParents: t.Missing,
		Spans: []DocumentSpan{}, CriticalPath: []DocumentSegment{}, Gaps: []DocumentGap{}, LinkedTraces: []string{}, LaterTraces: []string{},
	}
	if !t.Running.IsZero() {
		d.RunningMs = t.since(t.Running)
	}
	if t.Ready {
		d.ReadyMs = t.since(t.End)
	}
	for _, s := range t.Spans {
		span := DocumentSpan{
			ID: s.ID, ParentID: s.Parent, Name: s.Name, Service: s.Service, StartMs: *t.since(s.Start), DurationMs: ms(s.Duration()),
			Wait: s.Wait(), Attributes: s.Attributes,
		}
		if s.Failed {
			span.Error = s.Message
			if span.Error == "" {
				span.Error = "failed"
			}
		}
		d.Spans = append(d.Spans, span)
	}
	for _, s := range t.Path {
		d.CriticalPath = append(d.CriticalPath, segment(s.Span, *t.since(s.Start), ms(s.Duration())))
	}
	if w := t.LongestWait(); w != nil {
		start := 0.0
		if w.Span != nil {
			start = *t.since(w.Span.Start)
		}
		longest := segment(w.Span, start, ms(w.Time))
		d.LongestWait = &longest
	}
	for _, g := range t.Gaps {
		d.Gaps = append(d.Gaps, DocumentGap{StartMs: *t.since(g.Start), DurationMs: ms(g.Duration())})
	}
	d.LinkedTraces = append(d.LinkedTraces, t.Linked...)
	return d
}

func segment(s *Span, start, duration float64) DocumentSegment {
	out := DocumentSegment{StartMs: start, DurationMs: duration}
	if s != nil {
		out.SpanID, out.Name, out.Service = s.ID, s.Name, s.Service
	}
	return out
}

func (t *Trace) since(at time.Time) *float64 {
	out := ms(at.Sub(t.Start))
	return &out
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
