// Package tracestore keeps the recent traces of a cluster in memory: services send their spans to it over OTLP/gRPC,
// `trireme trace` asks for traces over the two calls of Jaeger's query API that it needs. `trireme up` runs one beside
// the services. It never writes to disk, and whoever wants traces for longer, or to look at them in a browser, sends them
// to a collector instead.
package tracestore

import (
	"bytes"
	"container/list"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"trireme.dev/cmd/trireme/internal/otlpjson"
)

const (
	// traceIDSize is the length of a trace's id in bytes.
	traceIDSize = 16
	// remembered is how many traces that were pushed out are known, so that what comes late of them is not taken for
	// another trace.
	remembered = 16 << 10
	// share of all bytes that one trace may have.
	share = 8
)

// ErrNotFound is what Get returns for a trace that is not kept: it never came, or has been pushed out since.
var ErrNotFound = errors.New("no such trace")

// TraceID identifies a trace.
type TraceID [traceIDSize]byte

// String is the id in hexadecimal.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// ParseTraceID reads 32 hexadecimal digits; fewer, as Jaeger shows them, have zeros before them.
func ParseTraceID(text string) (TraceID, error) {
	var id TraceID
	if text == "" || len(text) > 2*traceIDSize {
		return id, fmt.Errorf("%q is no trace id: want 32 hexadecimal digits", text)
	}
	digits := append(bytes.Repeat([]byte{'0'}, 2*traceIDSize-len(text)), text...)
	if _, err := hex.Decode(id[:], digits); err != nil {
		return id, fmt.Errorf("%q is no trace id: want 32 hexadecimal digits", text)
	}
	return id, nil
}

// Config bounds a store.
type Config struct {
	// MaxBytes of spans; 64 MiB when zero.
	MaxBytes int
	// MaxTraces is how many traces; 20,000 when zero.
	MaxTraces int
}

// Store keeps traces as the bytes in which they came. The trace of which a first span came longest ago is pushed out
// whole when there is no room. Safe for concurrent use.
type Store struct {
	maxBytes, maxTraces int

	mu      sync.Mutex
	traces  map[TraceID]*list.Element // of *entry
	order   *list.List                // oldest first
	bytes   int
	evicted map[TraceID]bool
	gone    []TraceID // evicted, as a ring
	next    int
}

type entry struct {
	id TraceID
	// parts are messages ResourceSpans.
	parts [][]byte
	bytes int
}

// New returns an empty store.
func New(cfg Config) *Store {
	s := &Store{
		maxBytes: cfg.MaxBytes, maxTraces: cfg.MaxTraces,
		traces: map[TraceID]*list.Element{}, order: list.New(), evicted: map[TraceID]bool{},
	}
	if s.maxBytes == 0 {
		s.maxBytes = 64 << 20
	}
	if s.maxTraces == 0 {
		s.maxTraces = 20_000
	}
	return s
}

// Add keeps spans and returns how many it does not take: those without a trace id, those of a trace that was pushed out
// already, and those by which one trace would have more than an eighth of the room.
func (s *Store) Add(batch []*tracepb.ResourceSpans) (rejected int, err error) {
	for _, process := range batch {
		byTrace := map[TraceID]*tracepb.ResourceSpans{}
		var order []TraceID
		for _, scope := range process.GetScopeSpans() {
			// The scope of a trace's spans in this message, so that a scope is written once per trace.
			scopes := map[TraceID]*tracepb.ScopeSpans{}
			for _, span := range scope.GetSpans() {
				if len(span.GetTraceId()) != traceIDSize {
					rejected++
					continue
				}
				id := TraceID(span.GetTraceId())
				if scopes[id] == nil {
					if byTrace[id] == nil {
						byTrace[id] = &tracepb.ResourceSpans{Resource: process.GetResource(), SchemaUrl: process.GetSchemaUrl()}
						order = append(order, id)
					}
					scopes[id] = &tracepb.ScopeSpans{Scope: scope.GetScope(), SchemaUrl: scope.GetSchemaUrl()}
					byTrace[id].ScopeSpans = append(byTrace[id].ScopeSpans, scopes[id])
				}
				scopes[id].Spans = append(scopes[id].Spans, span)
			}
		}
		for _, id := range order {
			part := byTrace[id]
			data, err := proto.Marshal(part)
			if err != nil {
				return rejected, fmt.Errorf("spans of trace %s: %w", id, err)
			}
			if !s.put(id, data) {
				rejected += count(part)
			}
		}
	}
	return rejected, nil
}

func count(part *tracepb.ResourceSpans) int {
	n := 0
	for _, scope := range part.GetScopeSpans() {
		n += len(scope.GetSpans())
	}
	return n
}

func (s *Store) put(id TraceID, part []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.evicted[id] {
		return false
	}
	at, ok := s.traces[id]
	size := len(part)
	if ok {
		size += at.Value.(*entry).bytes
	}
	if size > s.maxBytes/share {
		return false
	}
	if !ok {
		at = s.order.PushBack(&entry{id: id})
		s.traces[id] = at
	}
	e := at.Value.(*entry)
	e.parts = append(e.parts, part)
	e.bytes = size
	s.bytes += len(part)
	for s.bytes > s.maxBytes || len(s.traces) > s.maxTraces {
		s.evict(s.order.Front())
	}
	return !s.evicted[id]
}

func (s *Store) evict(at *list.Element) {
	e := s.order.Remove(at).(*entry)
	delete(s.traces, e.id)
	s.bytes -= e.bytes
	if len(s.gone) < remembered {
		s.gone = append(s.gone, e.id)
	} else {
		delete(s.evicted, s.gone[s.next])
		s.gone[s.next] = e.id
		s.next = (s.next + 1) % remembered
	}
	s.evicted[e.id] = true
}

// Get returns the spans of a trace, in the order in which they came.
func (s *Store) Get(id TraceID) (*otlpjson.Data, error) {
	s.mu.Lock()
	at, ok := s.traces[id]
	var parts [][]byte
	if ok {
		parts = at.Value.(*entry).parts // only ever appended to
	}
	s.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("%s: %w", id, ErrNotFound)
	}
	data := &otlpjson.Data{}
	for _, p := range parts {
		spans, err := decode(p)
		if err != nil {
			return nil, err
		}
		data.ResourceSpans = append(data.ResourceSpans, otlpjson.FromProto(spans))
	}
	return data, nil
}

// Find returns the ids of traces, newest first and limit at most, in which a span of the service has all the tags. An
// empty service is any.
func (s *Store) Find(service string, tags map[string]string, limit int) ([]TraceID, error) {
	s.mu.Lock()
	newest := make([]entry, 0, len(s.traces))
	for at := s.order.Back(); at != nil; at = at.Prev() {
		newest = append(newest, *at.Value.(*entry))
	}
	s.mu.Unlock()
	var found []TraceID
	for _, e := range newest {
		if len(found) == limit {
			break
		}
		for _, p := range e.parts {
			ok, err := matches(p, service, tags)
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, e.id)
				break
			}
		}
	}
	return found, nil
}

func matches(part []byte, service string, tags map[string]string) (bool, error) {
	// Most parts are out for want of the text, and need not be decoded.
	if !bytes.Contains(part, []byte(service)) {
		return false, nil
	}
	for _, value := range tags {
		if !bytes.Contains(part, []byte(value)) {
			return false, nil
		}
	}
	spans, err := decode(part)
	if err != nil {
		return false, err
	}
	process := otlpjson.FromProto(spans)
	if service != "" && !has(process.Resource.Attributes, "service.name", service) {
		return false, nil
	}
	for _, scope := range process.ScopeSpans {
		for _, span := range scope.Spans {
			all := true
			for key, value := range tags {
				all = all && has(span.Attributes, key, value)
			}
			if all {
				return true, nil
			}
		}
	}
	return false, nil
}

func has(attributes []otlpjson.KeyValue, key, value string) bool {
	for _, a := range attributes {
		if a.Key == key && a.Value.String != nil && *a.Value.String == value {
			return true
		}
	}
	return false
}

func decode(part []byte) (*tracepb.ResourceSpans, error) {
	spans := &tracepb.ResourceSpans{}
	if err := proto.Unmarshal(part, spans); err != nil {
		return nil, fmt.Errorf("kept spans: %w", err)
	}
	return spans, nil
}
