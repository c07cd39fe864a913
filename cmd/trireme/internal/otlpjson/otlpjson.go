// Package otlpjson is traces in OTLP's JSON form: ids in hexadecimal, 64-bit numbers as strings, enums as numbers
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). up's trace store writes it, `trireme trace` reads
// it, and so does Jaeger. It never interprets a span.
package otlpjson

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Response is what Jaeger's query API answers: the data, or an error.
type Response struct {
	Result *Data  `json:"result,omitempty"`
	Error  *Error `json:"error,omitempty"`
}

// Error is a request that was not answered.
type Error struct {
	HTTPCode int    `json:"httpCode,omitempty"`
	Message  string `json:"message,omitempty"`
}

// Found is what Jaeger answers to a search, as far as it is read here.
type Found struct {
	Data []FoundTrace `json:"data"`
}

// FoundTrace is one trace that a search found.
type FoundTrace struct {
	TraceID string `json:"traceID"`
}

// Data is OTLP's TracesData.
type Data struct {
	ResourceSpans []ResourceSpans `json:"resourceSpans"`
}

// ResourceSpans are spans of one process.
type ResourceSpans struct {
	Resource   Resource     `json:"resource"`
	ScopeSpans []ScopeSpans `json:"scopeSpans"`
}

// Resource is a process.
type Resource struct {
	Attributes []KeyValue `json:"attributes,omitempty"`
}

// ScopeSpans are spans of one library in a process.
type ScopeSpans struct {
	Scope Scope  `json:"scope"`
	Spans []Span `json:"spans"`
}

// Scope is a library.
type Scope struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
}

// Span is one span.
type Span struct {
	TraceID                string     `json:"traceId"`
	SpanID                 string     `json:"spanId"`
	ParentSpanID           string     `json:"parentSpanId,omitempty"`
	TraceState             string     `json:"traceState,omitempty"`
	Name                   string     `json:"name"`
	Kind                   int32      `json:"kind,omitempty"`
	StartTimeUnixNano      Int        `json:"startTimeUnixNano,omitempty"`
	EndTimeUnixNano        Int        `json:"endTimeUnixNano,omitempty"`
	Attributes             []KeyValue `json:"attributes,omitempty"`
	DroppedAttributesCount uint32     `json:"droppedAttributesCount,omitempty"`
	Events                 []Event    `json:"events,omitempty"`
	Links                  []Link     `json:"links,omitempty"`
	Status                 Status     `json:"status"`
	Flags                  uint32     `json:"flags,omitempty"`
}

// Event is a moment in a span.
type Event struct {
	TimeUnixNano Int        `json:"timeUnixNano,omitempty"`
	Name         string     `json:"name"`
	Attributes   []KeyValue `json:"attributes,omitempty"`
}

// Link points to a span of another trace.
type Link struct {
	TraceID    string     `json:"traceId"`
	SpanID     string     `json:"spanId"`
	Attributes []KeyValue `json:"attributes,omitempty"`
}

// StatusError is the code of a span that failed.
const StatusError = 2

// Status is how a span ended.
type Status struct {
	Message string `json:"message,omitempty"`
	Code    int32  `json:"code,omitempty"`
}

// KeyValue is an attribute.
type KeyValue struct {
	Key   string `json:"key"`
	Value Value  `json:"value"`
}

// Value is an attribute's value: one field is set.
type Value struct {
	String *string  `json:"stringValue,omitempty"`
	Bool   *bool    `json:"boolValue,omitempty"`
	Int    *Int     `json:"intValue,omitempty"`
	Double *float64 `json:"doubleValue,omitempty"`
	Bytes  []byte   `json:"bytesValue,omitempty"`
	Array  *Array   `json:"arrayValue,omitempty"`
	List   *List    `json:"kvlistValue,omitempty"`
}

// Array is a value made of values.
type Array struct {
	Values []Value `json:"values"`
}

// List is a value made of attributes.
type List struct {
	Values []KeyValue `json:"values"`
}

// Int is a 64-bit number, which is a string in JSON; a number is read as well.
type Int int64

// MarshalJSON implements json.Marshaler.
func (i Int) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(i), 10)), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *Int) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(data), `"`), 10, 64)
	if err != nil {
		return fmt.Errorf("%s is no 64-bit number", data)
	}
	*i = Int(n)
	return nil
}

// Text is a value as people read it.
func (v Value) Text() string {
	switch {
	case v.String != nil:
		return *v.String
	case v.Bool != nil:
		return strconv.FormatBool(*v.Bool)
	case v.Int != nil:
		return strconv.FormatInt(int64(*v.Int), 10)
	case v.Double != nil:
		return strconv.FormatFloat(*v.Double, 'g', -1, 64)
	case v.Bytes != nil:
		return hex.EncodeToString(v.Bytes)
	case v.Array != nil:
		texts := make([]string, len(v.Array.Values))
		for i, e := range v.Array.Values {
			texts[i] = e.Text()
		}
		return strings.Join(texts, ",")
	case v.List != nil:
		texts := make([]string, len(v.List.Values))
		for i, e := range v.List.Values {
			texts[i] = e.Key + "=" + e.Value.Text()
		}
		return strings.Join(texts, ",")
	}
	return ""
}

// Decode reads an answer of the query API.
func Decode(data []byte) (*Response, error) {
	r := &Response{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("traces in OTLP's JSON form: %w", err)
	}
	return r, nil
}

// FromProto takes spans as they came over gRPC.
func FromProto(from *tracepb.ResourceSpans) ResourceSpans {
	out := ResourceSpans{Resource: Resource{Attributes: attributes(from.GetResource().GetAttributes())}}
	for _, s := range from.GetScopeSpans() {
		scope := ScopeSpans{
			Scope: Scope{Name: s.GetScope().GetName(), Version: s.GetScope().GetVersion()},
			Spans: make([]Span, len(s.GetSpans())),
		}
		for i, sp := range s.GetSpans() {
			scope.Spans[i] = span(sp)
		}
		out.ScopeSpans = append(out.ScopeSpans, scope)
	}
	return out
}

func span(s *tracepb.Span) Span {
	out := Span{
		TraceID: hex.EncodeToString(s.GetTraceId()), SpanID: hex.EncodeToString(s.GetSpanId()),
		ParentSpanID: hex.EncodeToString(s.GetParentSpanId()), TraceState: s.GetTraceState(), Name: s.GetName(),
		Kind: int32(s.GetKind()), StartTimeUnixNano: Int(s.GetStartTimeUnixNano()), EndTimeUnixNano: Int(s.GetEndTimeUnixNano()),
		Attributes: attributes(s.GetAttributes()), DroppedAttributesCount: s.GetDroppedAttributesCount(),
		Status: Status{Message: s.GetStatus().GetMessage(), Code: int32(s.GetStatus().GetCode())}, Flags: s.GetFlags(),
	}
	for _, e := range s.GetEvents() {
		out.Events = append(out.Events, Event{TimeUnixNano: Int(e.GetTimeUnixNano()), Name: e.GetName(), Attributes: attributes(e.GetAttributes())})
	}
	for _, l := range s.GetLinks() {
		out.Links = append(out.Links, Link{
			TraceID: hex.EncodeToString(l.GetTraceId()), SpanID: hex.EncodeToString(l.GetSpanId()), Attributes: attributes(l.GetAttributes()),
		})
	}
	return out
}

func attributes(from []*commonpb.KeyValue) []KeyValue {
	var out []KeyValue
	for _, kv := range from {
		out = append(out, KeyValue{Key: kv.GetKey(), Value: value(kv.GetValue())})
	}
	return out
}

func value(v *commonpb.AnyValue) Value {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return Value{String: &v.StringValue}
	case *commonpb.AnyValue_BoolValue:
		return Value{Bool: &v.BoolValue}
	case *commonpb.AnyValue_IntValue:
		return Value{Int: (*Int)(&v.IntValue)}
	case *commonpb.AnyValue_DoubleValue:
		return Value{Double: &v.DoubleValue}
	case *commonpb.AnyValue_BytesValue:
		return Value{Bytes: v.BytesValue}
	case *commonpb.AnyValue_ArrayValue:
		array := &Array{}
		for _, e := range v.ArrayValue.GetValues() {
			array.Values = append(array.Values, value(e))
		}
		return Value{Array: array}
	case *commonpb.AnyValue_KvlistValue:
		return Value{List: &List{Values: attributes(v.KvlistValue.GetValues())}}
	}
	return Value{}
}
