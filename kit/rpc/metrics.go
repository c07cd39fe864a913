package rpc

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"trireme.dev/client/metrics"
)

// calls counts the calls that a process makes under Kubernetes' name, with the verbs and codes that HTTP would have, so
// that its dashboards read them. A stream counts once, when it is opened.
type calls struct {
	host    string
	counter metric.Int64Counter
	labels  sync.Map // of metric.MeasurementOption, by callKey
}

type callKey struct {
	method string
	code   codes.Code
}

// clientMetrics count the calls of a connection.
func clientMetrics(host string) []grpc.DialOption {
	c := &calls{host: host, counter: metrics.Counter("rest_client_requests_total", "Calls made to the gateway, by code, verb and address.")}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.unary), grpc.WithChainStreamInterceptor(c.stream)}
}

func (c *calls) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	c.count(ctx, method, err)
	return err
}

func (c *calls) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	c.count(ctx, method, err)
	return s, err
}

func (c *calls) count(ctx context.Context, method string, err error) {
	key := callKey{method, status.Code(err)}
	labels, ok := c.labels.Load(key)
	if !ok {
		labels, _ = c.labels.LoadOrStore(key, metrics.Labels("code", strconv.Itoa(httpCode(key.code)), "method", httpVerb(method), "host", c.host))
	}
	c.counter.Add(ctx, 1, labels.(metric.MeasurementOption))
}

func httpVerb(method string) string {
	switch method[strings.LastIndexByte(method, '/')+1:] {
	case "Get", "List", "Watch", "Check", "Logs":
		return "GET"
	case "Update", "UpdateStatus":
		return "PUT"
	case "Patch":
		return "PATCH"
	case "Delete", "DeleteCollection":
		return "DELETE"
	}
	return "POST"
}

// httpCode is what Kubernetes answers with where we say code.
func httpCode(code codes.Code) int {
	switch code {
	case codes.OK:
		return 200
	case codes.FailedPrecondition:
		return 400
	case codes.OutOfRange:
		return 410 // a watch that cannot resume
	case codes.Unauthenticated:
		return 401
	case codes.PermissionDenied:
		return 403
	case codes.NotFound:
		return 404
	case codes.AlreadyExists, codes.Aborted:
		return 409
	case codes.InvalidArgument:
		return 422
	case codes.ResourceExhausted:
		return 429
	case codes.Canceled:
		return 499
	case codes.Unimplemented:
		return 405
	case codes.Unavailable:
		return 503
	case codes.DeadlineExceeded:
		return 504
	}
	return 500
}
