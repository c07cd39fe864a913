package gateway

import (
	"bytes"
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/peer"

	"trireme.dev/client/apierr"
	"trireme.dev/services/apiserver/internal/audit"
)

// auditing is what is told of one call.
type auditing struct {
	record   *audit.Record
	source   string
	long     bool
	response []byte // where the record wants it
}

// sent hears of a message of the answer.
func (a *auditing) sent(f frame) {
	switch {
	case a.record == nil:
	case a.long:
		a.record.Started()
	case a.record.WantsResponse() && a.response == nil:
		a.response = bytes.Clone(f)
	}
}

func (a *auditing) started() {
	if a.long {
		a.record.Started()
	}
}

func (g *Gateway) beginAudit(ctx context.Context, x *exchange) (context.Context, error) {
	if g.audit == nil {
		return ctx, nil
	}
	x.audit.source, x.audit.long = sourceOf(ctx), x.at.Long
	x.userAgent(ctx)
	if g.audit.Refusals() && (x.at.ReadOnly() || x.at.Resource == "") {
		return ctx, nil // of which only refusals are told: what it asks for is read where it matters
	}
	// What cannot be read is refused by the next stage, and told of with what is known.
	_ = x.attributes()
	x.audit.record = g.audit.Begin(x.audited(true))
	return ctx, nil
}

// audited is the call as audit wants it; the message only where it has not been handed on yet.
func (x *exchange) audited(withRequest bool) audit.Call {
	c := audit.Call{Attributes: &x.at, Source: x.audit.source}
	if withRequest {
		c.Request, c.RequestType, c.ResponseType = bytes.Clone(x.first), x.call.input, x.call.output
	}
	return c
}

func (g *Gateway) endAudit(x *exchange, err error) {
	switch {
	case g.audit == nil:
	case errors.Is(err, errPanicked):
		x.audit.record.Panicked()
	case x.audit.record != nil:
		x.audit.record.End(statusOf(err), x.audit.response)
	case g.audit.Refusals() && (apierr.IsForbidden(err) || apierr.IsUnauthenticated(err)):
		g.audit.Refused(x.audited(false), statusOf(err))
	}
}

func statusOf(err error) audit.Status {
	s := audit.Status{Code: httpCode(err)}
	if err != nil {
		s.Reason, s.Message = string(apierr.ReasonOf(err)), err.Error()
	}
	return s
}

// sourceOf is the address that a call comes from; empty on sockets.
func sourceOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return ""
	}
	return host
}
