package apierr

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain of the ErrorInfo detail.
const Domain = "trireme.dev"

// table pairs each reason with its code and with its name on the wire (ErrorInfo wants upper snake case).
var table = []struct {
	reason Reason
	code   codes.Code
	wire   string
}{
	{ReasonNotFound, codes.NotFound, "NOT_FOUND"},
	{ReasonAlreadyExists, codes.AlreadyExists, "ALREADY_EXISTS"},
	{ReasonConflict, codes.Aborted, "CONFLICT"},
	{ReasonInvalid, codes.InvalidArgument, "INVALID"},
	{ReasonExpired, codes.OutOfRange, "EXPIRED"},
	{ReasonTooMany, codes.ResourceExhausted, "TOO_MANY"},
	{ReasonForbidden, codes.PermissionDenied, "FORBIDDEN"},
	{ReasonUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED"},
	{ReasonFailedPrecondition, codes.FailedPrecondition, "FAILED_PRECONDITION"},
	{ReasonUnavailable, codes.Unavailable, "UNAVAILABLE"},
	{ReasonUnimplemented, codes.Unimplemented, "UNIMPLEMENTED"},
	{ReasonTimeout, codes.DeadlineExceeded, "TIMEOUT"},
	{ReasonCanceled, codes.Canceled, "CANCELED"},
	{ReasonInternal, codes.Internal, "INTERNAL"},
}

// Code returns the gRPC code of a reason.
func (r Reason) Code() codes.Code {
	for _, row := range table {
		if row.reason == r {
			return row.code
		}
	}
	return codes.Unknown
}

// ToStatus turns err into a gRPC status error with google.rpc details: ErrorInfo always (reason, kind, key), BadRequest
// with the field violations, RetryInfo with the delay. A status error passes unchanged, a context's error takes its
// code, and anything else is INTERNAL. The message keeps what callers wrapped around the Error.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		if _, ok := status.FromError(err); ok {
			return err
		}
		switch {
		case errors.Is(err, context.Canceled):
			e = &Error{Reason: ReasonCanceled}
		case errors.Is(err, context.DeadlineExceeded):
			e = &Error{Reason: ReasonTimeout}
		default:
			e = &Error{Reason: ReasonInternal}
		}
	}
	info := &errdetails.ErrorInfo{Domain: Domain, Metadata: map[string]string{}}
	code := codes.Internal
	for _, row := range table {
		if row.reason == e.Reason {
			info.Reason, code = row.wire, row.code
		}
	}
	if e.Kind != "" {
		info.Metadata["kind"] = e.Kind
	}
	if e.Key != "" {
		info.Metadata["key"] = cut(e.Key, maxText)
	}
	if e.Continue != "" {
		info.Metadata["continue"] = e.Continue
	}
	details := []protoadapt.MessageV1{info}
	if len(e.Violations) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range e.Violations {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: cut(v.Field, maxText), Description: cut(v.Message, maxText),
			})
		}
		details = append(details, bad)
	}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	st := status.New(code, cut(err.Error(), maxMessage))
	if detailed, derr := st.WithDetails(details...); derr == nil {
		st = detailed
	}
	return st.Err()
}

// An error travels in headers, which clients and proxies bound: it repeats no more of what the caller sent than helps.
const (
	maxText    = 4 << 10  // of one field, violation or key
	maxMessage = 64 << 10 // of the whole message
)

// cut makes s fit a protobuf string of so many bytes: users' bytes may stand in it.
func cut(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// FromStatus turns what a gRPC call returned into an *Error. nil and io.EOF pass unchanged, as does an error that has
// an Error in its chain already. CANCELLED and DEADLINE_EXCEEDED unwrap to the context's errors.
func FromStatus(err error) error {
	var e *Error
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &e) {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		// A stream whose context ended before it began returns the context's own error.
		st = status.FromContextError(err)
		if st.Code() == codes.Unknown {
			return &Error{Reason: ReasonInternal, Message: err.Error(), Err: err}
		}
	}
	e = &Error{Reason: ReasonInternal, Message: st.Message()}
	for _, row := range table {
		if row.code == st.Code() {
			e.Reason = row.reason
		}
	}
	switch e.Reason {
	case ReasonCanceled:
		e.Err = context.Canceled
	case ReasonTimeout:
		e.Err = context.DeadlineExceeded
	}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Kind, e.Key = d.GetMetadata()["kind"], d.GetMetadata()["key"]
			e.Continue = d.GetMetadata()["continue"]
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Violations = append(e.Violations, Violation{Field: v.GetField(), Message: v.GetDescription()})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return e
}
