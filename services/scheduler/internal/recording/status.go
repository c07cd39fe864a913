package recording

import (
	"context"
	"errors"

	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	"trireme.dev/services/scheduler/framework"
)

// StatusToProto keeps of a status what decisions can depend on; nil for success.
func StatusToProto(st *framework.Status) *recordv1.Status {
	if st.IsSuccess() {
		return nil
	}
	out := &recordv1.Status{Code: int32(st.Code()), Plugin: st.Plugin(), Cancelled: errors.Is(st.Err(), context.Canceled)}
	for _, r := range st.Reasons() {
		out.Reasons = append(out.Reasons, FirstLine(r))
	}
	return out
}

// StatusFromProto is its inverse.
func StatusFromProto(p *recordv1.Status) *framework.Status {
	if p == nil {
		return nil
	}
	st := framework.NewStatus(framework.Code(p.GetCode()), p.GetReasons()...)
	if st.Code() == framework.Error {
		st = framework.AsStatus(&failure{st.Message(), p.GetCancelled()})
	}
	return st.WithPlugin(p.GetPlugin())
}

// failure is an error of which the text is left, and whether the end of the scheduler was the reason.
type failure struct {
	message   string
	cancelled bool
}

func (f *failure) Error() string { return f.message }

// Is has a failure that was cancelled be context.Canceled.
func (f *failure) Is(target error) bool { return f.cancelled && target == context.Canceled }
