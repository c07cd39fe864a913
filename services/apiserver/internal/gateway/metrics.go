package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	instruments "trireme.dev/client/metrics"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/request"
)

// Bounds of Kubernetes.
var (
	durationBounds = []float64{
		0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
	}
	sizeBounds = []float64{1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000}
)

// metrics count requests under Kubernetes' names. Codes are those that Kubernetes would have answered with over HTTP, so
// that its dashboards and alerts read them.
type metrics struct {
	requests metric.Int64Counter
	seconds  metric.Float64Histogram
	sizes    metric.Float64Histogram

	// readOnly and mutating are the requests under way that are not long-running.
	readOnly, mutating atomic.Int64
}

func newMetrics() *metrics {
	return &metrics{
		requests: instruments.Counter("apiserver_request_total", "Requests answered, by verb, resource and code."),
		seconds:  instruments.Histogram("apiserver_request_duration_seconds", "Duration of requests, by verb and resource.", durationBounds),
		sizes:    instruments.Histogram("apiserver_response_sizes", "Bytes of the answers to reads.", sizeBounds),
	}
}

// call is one method.
type call struct {
	serve  handler
	method *request.Method
	reads  bool // its request says which object it is about
	// input and output are what a call is made with and answered by; nil where that is not told.
	input, output protoreflect.MessageType
	// labels of all that is counted, and the option made of them once.
	labels   [10]string
	record   []metric.RecordOption
	mutating bool
	read     bool // its answer's size is told
	long     bool
	underWay atomic.Int64 // where it is long-running

	mu    sync.RWMutex
	codes map[int][]metric.AddOption
}

// verbs of Kubernetes by ours, and what they go to.
var verbs = map[string]verb{
	"Get": {"GET", request.Get, ""}, "List": {"LIST", request.List, ""}, "Watch": {"WATCH", request.Watch, ""},
	"GetScale": {"GET", request.Get, "scale"}, "UpdateScale": {"PUT", request.Update, "scale"},
	"Create": {"POST", request.Create, ""}, "Update": {"PUT", request.Update, ""}, "UpdateStatus": {"PUT", request.Update, "status"},
	"Patch": {"PATCH", request.Patch, ""}, "Delete": {"DELETE", request.Delete, ""},
	"DeleteCollection": {"DELETECOLLECTION", request.DeleteCollection, ""},
	"Bind":             {"POST", request.Create, "binding"}, "Evict": {"POST", request.Create, "eviction"},
	"Logs": {"CONNECT", request.Get, "log"}, "Exec": {"CONNECT", request.Create, "exec"}, "PortForward": {"CONNECT", request.Create, "portforward"},
}

// verb of a method: as metrics have it and as authorization does, and what of the object it goes to.
type verb struct{ metric, verb, subresource string }

// plainCall describes a method of a service that is none of a kind.
func plainCall(method string) *call {
	return &call{method: &request.Method{Path: method, Verb: request.Create}}
}

// newCall describes a method of a kind; k is nil for a service of no kind.
func newCall(k *kind.Kind, m protoreflect.MethodDescriptor, serve handler) *call {
	v, ok := verbs[string(m.Name())]
	if !ok || k == nil {
		// Passed on to a node, or about the store as a whole.
		v = verb{"CONNECT", request.Create, "proxy"}
	}
	group, version, resource := "", "v1", ""
	if k != nil {
		group, version, resource = registry.Group(k), k.Version, k.Plural
	}
	c := &call{serve: serve, codes: map[int][]metric.AddOption{}}
	c.method = methodOf(k, m, v)
	c.reads = c.method.Resource != ""
	c.input, c.output = messageType(m.Input()), messageType(m.Output())
	c.labels = [...]string{"verb", v.metric, "group", group, "version", version, "resource", resource, "subresource", v.subresource}
	c.record = []metric.RecordOption{instruments.Labels(c.labels[:]...)}
	c.long = v.metric == "WATCH" || v.metric == "CONNECT"
	c.read = v.metric == "GET" || v.metric == "LIST"
	c.mutating = !c.read && !c.long
	return c
}

// methodOf is what a method asks for. Those of node agents are of the node that they are passed on to.
func methodOf(k *kind.Kind, m protoreflect.MethodDescriptor, v verb) *request.Method {
	out := &request.Method{
		Path: "/" + string(m.Parent().FullName()) + "/" + string(m.Name()), Verb: v.verb, Subresource: v.subresource,
		Long: v.metric == "WATCH" || v.metric == "CONNECT",
	}
	switch {
	case k != nil:
		out.Kind, out.Group, out.Version, out.Resource = k.Name, registry.Group(k), k.Version, k.Plural
	case m.Input().Fields().ByName("node_name") != nil:
		out.Kind, out.Version, out.Resource = "Node", "v1", "nodes"
	default:
		out.Subresource = ""
		return out
	}
	out.Reads(m.Input())
	return out
}

func messageType(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil
	}
	return t
}

// counted returns the attributes of an answer with the code; there are few codes.
func (c *call) counted(code int) []metric.AddOption {
	c.mu.RLock()
	options := c.codes[code]
	c.mu.RUnlock()
	if options != nil {
		return options
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	labels := c.labels // a copy
	c.codes[code] = []metric.AddOption{instruments.Labels(append(labels[:], "code", strconv.Itoa(code))...)}
	return c.codes[code]
}

// measured takes one request through the stages and counts it.
func (g *Gateway) measured(ctx context.Context, x *exchange) error {
	begin, m, c := time.Now(), g.metrics, x.call
	gauge := &m.readOnly
	switch {
	case c.long:
		gauge = &c.underWay
	case c.mutating:
		gauge = &m.mutating
	}
	gauge.Add(1)
	defer gauge.Add(-1) // a panic in the handler is recovered further out
	err := g.pass(ctx, x)
	if c.read {
		m.sizes.Record(ctx, float64(x.bytes), c.record...)
	}
	m.requests.Add(ctx, 1, c.counted(httpCode(err))...)
	m.seconds.Record(ctx, time.Since(begin).Seconds(), c.record...)
	return err
}

// Run shows those who read metrics what is under way, until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	instruments.UntilDone(ctx,
		instruments.Gauge("apiserver_current_inflight_requests", "Requests under way, but for long-running ones.",
			func(report func(float64, ...string)) {
				report(float64(g.metrics.readOnly.Load()), "request_kind", "readOnly")
				report(float64(g.metrics.mutating.Load()), "request_kind", "mutating")
			}),
		instruments.Gauge("apiserver_longrunning_requests", "Watches, logs, exec and port forwards under way.",
			func(report func(float64, ...string)) {
				sums := map[[10]string]int64{} // several methods of nodes are one line
				for _, c := range g.methods {
					if c.long {
						sums[c.labels] += c.underWay.Load()
					}
				}
				for labels, n := range sums {
					report(float64(n), labels[:]...)
				}
			}))
	return nil
}

// httpCode is what Kubernetes answers in such a case.
func httpCode(err error) int {
	if err == nil {
		return http.StatusOK
	}
	switch {
	case errors.Is(err, context.Canceled):
		return 499 // the caller has gone
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	reason := apierr.ReasonOf(err)
	if reason == "" {
		reason = apierr.ReasonOf(apierr.FromStatus(err)) // of the caller's stream, or a node agent's
	}
	if code, ok := httpCodes[reason]; ok {
		return code
	}
	return http.StatusInternalServerError
}

var httpCodes = map[apierr.Reason]int{
	apierr.ReasonNotFound: http.StatusNotFound, apierr.ReasonAlreadyExists: http.StatusConflict, apierr.ReasonConflict: http.StatusConflict,
	apierr.ReasonInvalid: http.StatusUnprocessableEntity, apierr.ReasonExpired: http.StatusGone,
	apierr.ReasonTooMany: http.StatusTooManyRequests, apierr.ReasonForbidden: http.StatusForbidden,
	apierr.ReasonUnauthenticated: http.StatusUnauthorized, apierr.ReasonFailedPrecondition: http.StatusBadRequest,
	apierr.ReasonUnavailable: http.StatusServiceUnavailable, apierr.ReasonUnimplemented: http.StatusMethodNotAllowed,
	apierr.ReasonTimeout: http.StatusGatewayTimeout, apierr.ReasonCanceled: 499,
}
