// Package audit tells who called what, and how it ended, as lines of JSON in the shape of Kubernetes' audit events. A policy
// says of which calls, and how much. It never holds up a call: what cannot be written soon enough is dropped and counted. It
// decides nothing. In the gateway's chain it stands between authentication and authorization.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/natefinch/lumberjack.v2"

	"go.opentelemetry.io/otel/metric"

	"trireme.dev/client/metrics"
	"trireme.dev/kit/telemetry"
	"trireme.dev/services/apiserver/internal/request"
)

const (
	// maxWaiting events, of maxWaitingBytes, wait to be written; more are dropped.
	maxWaiting      = 10000
	maxWaitingBytes = 32 << 20
	// lastLines is how long events are still written when the gateway stops.
	lastLines = 2 * time.Second
)

// Config of a Log.
type Config struct {
	// File to write to; "-" is standard output.
	File string
	// Policy that decides; nil for Default.
	Policy *Policy
	// MaxSize in MiB after which a new file is begun; 100 where 0. MaxFiles old ones are kept; all where 0.
	MaxSize, MaxFiles int
	Logger            *slog.Logger
}

// Log writes events. Its methods are safe for concurrent use.
type Log struct {
	policy *Policy
	out    io.WriteCloser
	logger *slog.Logger

	waiting chan item
	bytes   atomic.Int64
	failing atomic.Bool

	events, dropped metric.Int64Counter
	byPlugin        metric.MeasurementOption
}

// item is an event on its way to the file.
type item struct {
	event             event
	request, response body
}

func (i *item) size() int64 { return int64(len(i.request.raw) + len(i.response.raw)) }

// New returns a log. The file is opened with the first event.
func New(cfg Config) *Log {
	l := &Log{
		policy: cfg.Policy, logger: cfg.Logger, waiting: make(chan item, maxWaiting),
		events:   metrics.Counter("apiserver_audit_event_total", "Audit events made."),
		dropped:  metrics.Counter("apiserver_audit_error_total", "Audit events that could not be written, by plugin."),
		byPlugin: metrics.Labels("plugin", "log"),
	}
	if l.policy == nil {
		l.policy = Default()
	}
	l.out = &lumberjack.Logger{Filename: cfg.File, MaxSize: cfg.MaxSize, MaxBackups: cfg.MaxFiles}
	if cfg.File == "-" {
		l.out = os.Stdout
	}
	return l
}

// Call is what a log is told of a call.
type Call struct {
	Attributes *request.Attributes
	// Source is where the call comes from.
	Source string
	// Request is the first message, and RequestType what it is. The bytes must not change.
	Request     []byte
	RequestType protoreflect.MessageType
	// ResponseType is what the call is answered with, once; nil where that is not told.
	ResponseType protoreflect.MessageType
}

// Record is one call as far as it has come. A nil Record is one of which nothing is told.
type Record struct {
	log      *Log
	verdict  verdict
	event    event
	request  body
	response protoreflect.MessageType
	started  atomic.Bool
}

// Begin tells of a call that has come in. It returns nil where nothing is to be told of it.
func (l *Log) Begin(c Call) *Record {
	v := l.policy.of(c.Attributes)
	if v.level == None {
		return nil
	}
	r := l.record(c, v)
	r.emit(RequestReceived, nil, nil)
	return r
}

// Refusals reports whether calls of which Begin has told nothing are told of where they are refused.
func (l *Log) Refusals() bool { return l.policy.refusals }

// Refused tells of a call that was refused, of which Begin has told nothing.
func (l *Log) Refused(c Call, status Status) {
	r := l.record(c, verdict{level: Metadata})
	r.emit(ResponseComplete, &status, nil)
}

func (l *Log) record(c Call, v verdict) *Record {
	at := c.Attributes
	r := &Record{log: l, verdict: v, event: event{
		Kind: "Event", APIVersion: "audit.k8s.io/v1", Level: v.level.String(), AuditID: uuid.NewString(),
		RequestURI: at.Path, Verb: at.Verb, User: user{at.Caller.User, at.Caller.Groups}, UserAgent: at.UserAgent,
		RequestReceivedTimestamp: microTime(time.Now()),
	}}
	if c.Source != "" {
		r.event.SourceIPs = []string{c.Source}
	}
	if at.Resource != "" {
		r.event.ObjectRef = &objectRef{
			Resource: at.Resource, Namespace: at.Namespace, Name: at.Name, APIGroup: at.Group, APIVersion: at.Version, Subresource: at.Subresource,
		}
	}
	if v.level >= Request {
		r.request = body{raw: c.Request, kind: c.RequestType, omitManagedFields: v.omitManagedFields}
	}
	if v.level >= RequestResponse {
		r.response = c.ResponseType
	}
	return r
}

// Status is how a call ended.
type Status struct {
	// Code as of HTTP; 200 where all is well.
	Code int
	// Reason and Message of the error.
	Reason, Message string
}

// WantsResponse reports whether End is to be given the answer.
func (r *Record) WantsResponse() bool { return r != nil && r.response != nil }

// Started tells that a call without an end of its own is being answered. Only the first time counts.
func (r *Record) Started() {
	if r != nil && r.started.CompareAndSwap(false, true) {
		r.emit(ResponseStarted, &Status{Code: 200}, nil)
	}
}

// End tells how a call ended. response is the answer's bytes, where WantsResponse asked for them.
func (r *Record) End(status Status, response []byte) {
	if r != nil {
		r.emit(ResponseComplete, &status, response)
	}
}

// Panicked tells of a call that ended in a panic.
func (r *Record) Panicked() {
	if r != nil {
		r.emit(Panic, &Status{Code: 500, Reason: "InternalError", Message: "the call panicked"}, nil)
	}
}

// emit puts the event of a stage in line.
func (r *Record) emit(stage Stage, status *Status, response []byte) {
	if slices.Contains(r.verdict.omit, stage) {
		return
	}
	i := item{event: r.event, request: r.request}
	i.event.Stage, i.event.StageTimestamp = stage, microTime(time.Now())
	if stage == RequestReceived {
		i.event.StageTimestamp = r.event.RequestReceivedTimestamp
	}
	if status != nil {
		i.event.ResponseStatus = &responseStatus{Code: status.Code, Reason: status.Reason, Message: status.Message}
		if status.Code >= 400 {
			i.event.ResponseStatus.Status = "Failure"
		}
		decision := "allow"
		if status.Code == 403 || status.Code == 401 {
			decision = "forbid"
		}
		i.event.Annotations = map[string]string{"authorization.k8s.io/decision": decision}
	}
	if response != nil {
		i.response = body{raw: response, kind: r.response, omitManagedFields: r.verdict.omitManagedFields}
	}
	l := r.log
	l.events.Add(context.Background(), 1)
	if l.bytes.Add(i.size()) > maxWaitingBytes {
		l.drop(&i, "too much waits to be written")
		return
	}
	select {
	case l.waiting <- i:
	default:
		l.drop(&i, "too many wait to be written")
	}
}

func (l *Log) drop(i *item, why string) {
	l.bytes.Add(-i.size())
	l.failed(fmt.Errorf("%s", why))
}

// failed counts an event that is lost, and says so the first time of a row.
func (l *Log) failed(err error) {
	l.dropped.Add(context.Background(), 1, l.byPlugin)
	if l.failing.CompareAndSwap(false, true) {
		l.logger.Error("audit events are lost", slog.Any(telemetry.KeyError, err))
	}
}

// Run writes until ctx ends, then what waits already.
func (l *Log) Run(ctx context.Context) error {
	defer func() {
		if l.out != os.Stdout {
			_ = l.out.Close() // nothing is buffered
		}
	}()
	for {
		select {
		case i := <-l.waiting:
			l.write(&i)
			continue
		case <-ctx.Done():
		}
		for end := time.Now().Add(lastLines); time.Now().Before(end); {
			select {
			case i := <-l.waiting:
				l.write(&i)
				continue
			default:
			}
			return nil
		}
		l.failed(fmt.Errorf("%d wait at the end", len(l.waiting)))
		return nil
	}
}

func (l *Log) write(i *item) {
	defer l.bytes.Add(-i.size())
	i.event.RequestObject, i.event.ResponseObject = i.request.json(), i.response.json()
	line, err := json.Marshal(&i.event)
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if err != nil {
		l.failed(err)
		return
	}
	l.failing.Store(false)
}
