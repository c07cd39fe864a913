package apierr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"trireme.dev/client/apierr"
)

func TestErrorsSurviveTheWire(t *testing.T) {
	for _, test := range []struct {
		err  *apierr.Error
		code codes.Code
		text string
		is   func(error) bool
	}{
		{apierr.NotFound("Pod", "default/web"), codes.NotFound, `Pod "default/web" not found`, apierr.IsNotFound},
		{apierr.AlreadyExists("Pod", "default/web"), codes.AlreadyExists, `Pod "default/web" already exists`, apierr.IsAlreadyExists},
		{apierr.Conflict("Node", "n1", "uid differs"), codes.Aborted, "uid differs", apierr.IsConflict},
		{
			apierr.Invalid("Pod", "default/web", apierr.Violation{Field: "spec.containers", Message: "required"}, apierr.Violation{Field: "spec.nodeName", Message: "immutable"}),
			codes.InvalidArgument, `Pod "default/web" is invalid: spec.containers: required; spec.nodeName: immutable`, apierr.IsInvalid,
		},
		{apierr.Expired("compacted"), codes.OutOfRange, "compacted", apierr.IsExpired},
		{apierr.TooMany("slow down", 1500*time.Millisecond), codes.ResourceExhausted, "slow down", apierr.IsTooMany},
		{apierr.Forbidden("Pod", "default/web", ""), codes.PermissionDenied, `Pod "default/web" is forbidden`, apierr.IsForbidden},
		{apierr.Unauthenticated("who?"), codes.Unauthenticated, "who?", apierr.IsUnauthenticated},
		{apierr.FailedPrecondition("Pod", "default/web", "no"), codes.FailedPrecondition, "no", apierr.IsFailedPrecondition},
		{apierr.Unavailable("etcd is away"), codes.Unavailable, "etcd is away", apierr.IsUnavailable},
		{apierr.Unimplemented("no"), codes.Unimplemented, "no", apierr.IsUnimplemented},
		{&apierr.Error{Reason: apierr.ReasonTimeout, Message: "late"}, codes.DeadlineExceeded, "late", apierr.IsTimeout},
		{apierr.Internal(errors.New("oops")), codes.Internal, "internal error: oops", apierr.IsInternal},
	} {
		t.Run(string(test.err.Reason), func(t *testing.T) {
			wire := apierr.ToStatus(fmt.Errorf("doing: %w", test.err))
			if c := status.Code(wire); c != test.code || test.err.Reason.Code() != test.code {
				t.Errorf("code %s, want %s", c, test.code)
			}
			back := apierr.FromStatus(wire)
			var e *apierr.Error
			if !errors.As(back, &e) {
				t.Fatalf("came back as %T", back)
			}
			want := *test.err
			want.Message, want.Err = "doing: "+test.text, nil
			got := *e
			got.Err = nil
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if !test.is(back) || test.is(errors.New("other")) || test.is(nil) {
				t.Error("the Is function is wrong")
			}
		})
	}
}

func TestErrorInfoOnTheWire(t *testing.T) {
	st, _ := status.FromError(apierr.ToStatus(apierr.NotFound("Pod", "default/web")))
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			if info.GetReason() != "NOT_FOUND" || info.GetDomain() != "trireme.dev" || info.GetMetadata()["kind"] != "Pod" || info.GetMetadata()["key"] != "default/web" {
				t.Errorf("info %v", info)
			}
			return
		}
	}
	t.Error("no ErrorInfo")
}

func TestOtherErrors(t *testing.T) {
	if apierr.ToStatus(nil) != nil || apierr.FromStatus(nil) != nil || !errors.Is(apierr.FromStatus(io.EOF), io.EOF) {
		t.Error("nil and EOF must pass")
	}
	given := status.Error(codes.DataLoss, "x")
	if !errors.Is(apierr.ToStatus(given), given) {
		t.Error("a status must pass unchanged")
	}
	if c := status.Code(apierr.ToStatus(errors.New("x"))); c != codes.Internal {
		t.Errorf("an unknown error is %s", c)
	}
	for cause, code := range map[error]codes.Code{context.Canceled: codes.Canceled, context.DeadlineExceeded: codes.DeadlineExceeded} {
		wire := apierr.ToStatus(fmt.Errorf("waiting: %w", cause))
		if status.Code(wire) != code || !errors.Is(apierr.FromStatus(wire), cause) || !errors.Is(apierr.FromStatus(cause), cause) {
			t.Errorf("%v does not survive", cause)
		}
	}
	if !apierr.IsInternal(apierr.FromStatus(given)) || !apierr.IsInternal(apierr.FromStatus(errors.New("x"))) {
		t.Error("what has no reason must be Internal")
	}
	already := fmt.Errorf("get: %w", apierr.NotFound("Pod", "a"))
	if !errors.Is(apierr.FromStatus(already), already) {
		t.Error("an Error must pass unchanged")
	}
	invalid := apierr.ToStatus(apierr.Invalid("Pod", "a", apierr.Violation{Field: "a\xff", Message: "b\xff"}))
	if !apierr.IsInvalid(apierr.FromStatus(invalid)) {
		t.Error("bytes that are no UTF-8 break the status")
	}
	if _, err := status.FromError(invalid); !err {
		t.Error("no status")
	}
}
