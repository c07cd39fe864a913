package framework

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Code is the outcome of one extension point.
type Code int

// The codes. Unschedulable, UnschedulableAndUnresolvable and Pending are rejections.
const (
	// Success is also what a nil *Status means.
	Success Code = iota
	// Error is an unexpected failure: the pod is tried again after a backoff, whatever happens in the cluster.
	Error
	// Unschedulable rejects a pod; removing other pods could help.
	Unschedulable
	// UnschedulableAndUnresolvable rejects a pod; removing other pods cannot help.
	UnschedulableAndUnresolvable
	// Wait holds a pod; Permit only.
	Wait
	// Skip leaves out the coupled later point, or, from Bind, passes the pod on to the next plugin.
	Skip
	// Pending rejects a pod until someone outside has acted; it then goes on without backoff.
	Pending
)

// String is the name of the code.
func (c Code) String() string {
	names := [...]string{"Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable", "Wait", "Skip", "Pending"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Code(%d)", int(c))
	}
	return names[c]
}

// Status is an outcome with its reasons. A nil Status is a success, and all methods bear one. It is immutable, so a
// plugin may return the same one again and again.
type Status struct {
	code    Code
	reasons []string
	err     error
	plugin  string
}

// skip is what nearly all that skip answer.
var skip = &Status{code: Skip}

// NewStatus returns a status with reasons in order.
func NewStatus(code Code, reasons ...string) *Status {
	if code == Skip && len(reasons) == 0 {
		return skip
	}
	s := &Status{code: code, reasons: reasons}
	if code == Error {
		s.err = errors.New(strings.Join(reasons, ", "))
	}
	return s
}

// AsStatus wraps an error; nil is a success. The error's text is the first reason.
func AsStatus(err error) *Status {
	if err == nil {
		return nil
	}
	return &Status{code: Error, reasons: []string{err.Error()}, err: err}
}

// WithPlugin returns the status as plugin's.
func (s *Status) WithPlugin(plugin string) *Status {
	if s == nil || s.plugin == plugin {
		return s
	}
	c := *s
	c.plugin = plugin
	return &c
}

// Code of the status.
func (s *Status) Code() Code {
	if s == nil {
		return Success
	}
	return s.code
}

// Reasons in order; not to be changed.
func (s *Status) Reasons() []string {
	if s == nil {
		return nil
	}
	return s.reasons
}

// Message is all reasons in one line.
func (s *Status) Message() string { return strings.Join(s.Reasons(), ", ") }

// Plugin that produced the status; empty where none did.
func (s *Status) Plugin() string {
	if s == nil {
		return ""
	}
	return s.plugin
}

// IsSuccess reports whether the code is Success.
func (s *Status) IsSuccess() bool { return s.Code() == Success }

// IsSkip reports whether the code is Skip.
func (s *Status) IsSkip() bool { return s.Code() == Skip }

// IsWait reports whether the code is Wait.
func (s *Status) IsWait() bool { return s.Code() == Wait }

// IsRejected reports whether the code is one of the rejections.
func (s *Status) IsRejected() bool {
	c := s.Code()
	return c == Unschedulable || c == UnschedulableAndUnresolvable || c == Pending
}

// Err returns nil for Success, Skip and Wait, and otherwise an error: the one wrapped, or the message.
func (s *Status) Err() error {
	switch s.Code() {
	case Success, Skip, Wait:
		return nil
	}
	if s.err != nil {
		return s.err
	}
	return errors.New(s.Message())
}

// Equal compares code, reasons, plugin and the identity of the wrapped error.
func (s *Status) Equal(o *Status) bool {
	if s == nil || o == nil {
		return s.Code() == o.Code() && len(s.Reasons()) == len(o.Reasons())
	}
	if !errors.Is(s.err, o.err) {
		return false
	}
	return s.code == o.code && s.plugin == o.plugin && slices.Equal(s.reasons, o.reasons)
}

// String is for logs and tests.
func (s *Status) String() string {
	if s.IsSuccess() {
		return "Success"
	}
	return fmt.Sprintf("%s by %q: %s", s.code, s.plugin, s.Message())
}
