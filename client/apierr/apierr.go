// Package apierr is the one type of error that crosses the API: typed inside every program, and mapped to a gRPC
// status and back at the wire and nowhere else.
//
// It owns the table of reasons and codes. It never retries and never logs.
package apierr

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Reason says in one word why a request failed. Programs decide on it, never on text.
type Reason string

// The reasons. Each has one gRPC code, named beside it.
const (
	ReasonNotFound           Reason = "NotFound"           // NOT_FOUND
	ReasonAlreadyExists      Reason = "AlreadyExists"      // ALREADY_EXISTS
	ReasonConflict           Reason = "Conflict"           // ABORTED: stale resourceVersion, or a watcher too slow
	ReasonInvalid            Reason = "Invalid"            // INVALID_ARGUMENT, with every field violation
	ReasonExpired            Reason = "Expired"            // OUT_OF_RANGE: the revision has been compacted
	ReasonTooMany            Reason = "TooMany"            // RESOURCE_EXHAUSTED, with a retry delay
	ReasonForbidden          Reason = "Forbidden"          // PERMISSION_DENIED
	ReasonUnauthenticated    Reason = "Unauthenticated"    // UNAUTHENTICATED
	ReasonFailedPrecondition Reason = "FailedPrecondition" // FAILED_PRECONDITION
	ReasonUnavailable        Reason = "Unavailable"        // UNAVAILABLE
	ReasonUnimplemented      Reason = "Unimplemented"      // UNIMPLEMENTED
	ReasonTimeout            Reason = "Timeout"            // DEADLINE_EXCEEDED
	ReasonCanceled           Reason = "Canceled"           // CANCELLED: the caller gave up
	ReasonInternal           Reason = "Internal"           // INTERNAL
)

// Violation is one thing wrong with one field.
type Violation struct {
	// Field is the path in the manifest's spelling: spec.containers[0].image.
	Field string
	// Message says what is wrong with it.
	Message string
}

// Error is a failed request. Kind and Key name the object it is about, where there is one.
type Error struct {
	Reason Reason
	// Kind as manifests write it: Pod.
	Kind string
	// Key is "namespace/name", or "name" for a cluster-scoped kind.
	Key string
	// Message for people; empty takes a sentence made of reason, kind and key.
	Message string
	// Violations of an Invalid error.
	Violations []Violation
	// RetryAfter is how long to wait before trying again; zero where the server did not say.
	RetryAfter time.Duration
	// Continue is the token with which an expired list may be gone on with all the same, at the present revision: what
	// comes is not one snapshot with what came.
	Continue string
	// Err is the cause. It does not cross the wire.
	Err error
}

// Error gives the message, then the cause.
func (e *Error) Error() string {
	text := e.Message
	if text == "" {
		text = e.sentence()
	}
	if e.Err != nil && !strings.Contains(text, e.Err.Error()) {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) sentence() string {
	subject := e.Kind
	if e.Key != "" {
		subject = strings.TrimSpace(fmt.Sprintf("%s %q", e.Kind, e.Key))
	}
	said := map[Reason]string{
		ReasonNotFound:      "not found",
		ReasonAlreadyExists: "already exists",
		ReasonConflict:      "has been changed by someone else: get it again and repeat the change",
		ReasonInvalid:       "is invalid",
		ReasonForbidden:     "is forbidden",
	}[e.Reason]
	if said == "" {
		said = string(e.Reason)
	}
	text := strings.TrimSpace(subject + " " + said)
	if len(e.Violations) > 0 {
		parts := make([]string, len(e.Violations))
		for i, v := range e.Violations {
			parts[i] = v.String()
		}
		text += ": " + strings.Join(parts, "; ")
	}
	return text
}

// String gives "field: message".
func (v Violation) String() string {
	if v.Field == "" {
		return v.Message
	}
	return v.Field + ": " + v.Message
}

// NotFound says that the object does not exist.
func NotFound(kind, key string) *Error {
	return &Error{Reason: ReasonNotFound, Kind: kind, Key: key}
}

// AlreadyExists says that an object of this name exists.
func AlreadyExists(kind, key string) *Error {
	return &Error{Reason: ReasonAlreadyExists, Kind: kind, Key: key}
}

// Conflict says that the object is not in the state that the write was based on. An empty message takes the usual one.
func Conflict(kind, key, message string) *Error {
	return &Error{Reason: ReasonConflict, Kind: kind, Key: key, Message: message}
}

// Invalid lists everything wrong with an object.
func Invalid(kind, key string, violations ...Violation) *Error {
	return &Error{Reason: ReasonInvalid, Kind: kind, Key: key, Violations: violations}
}

// BadRequest says that the request itself, not an object in it, makes no sense.
func BadRequest(message string) *Error {
	return &Error{Reason: ReasonInvalid, Message: message}
}

// Expired says that the history asked for has been compacted.
func Expired(message string) *Error {
	return &Error{Reason: ReasonExpired, Message: message}
}

// TooMany asks the caller to come back after a while.
func TooMany(message string, after time.Duration) *Error {
	return &Error{Reason: ReasonTooMany, Message: message, RetryAfter: after}
}

// Forbidden says that the caller may not do this.
func Forbidden(kind, key, message string) *Error {
	return &Error{Reason: ReasonForbidden, Kind: kind, Key: key, Message: message}
}

// Unauthenticated says that the caller is nobody we know.
func Unauthenticated(message string) *Error {
	return &Error{Reason: ReasonUnauthenticated, Message: message}
}

// FailedPrecondition says that the object's state forbids the request, and repeating it won't help.
func FailedPrecondition(kind, key, message string) *Error {
	return &Error{Reason: ReasonFailedPrecondition, Kind: kind, Key: key, Message: message}
}

// Unavailable says that a part this request needs is not there now.
func Unavailable(message string) *Error {
	return &Error{Reason: ReasonUnavailable, Message: message}
}

// Unimplemented says that nothing serves this request.
func Unimplemented(message string) *Error {
	return &Error{Reason: ReasonUnimplemented, Message: message}
}

// Internal wraps a failure that is our own.
func Internal(err error) *Error {
	return &Error{Reason: ReasonInternal, Message: "internal error", Err: err}
}

// ReasonOf returns the reason of the first Error in err's chain, and "" where there is none.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// IsNotFound reports whether err says NotFound.
func IsNotFound(err error) bool { return ReasonOf(err) == ReasonNotFound }

// IsAlreadyExists reports whether err says AlreadyExists.
func IsAlreadyExists(err error) bool { return ReasonOf(err) == ReasonAlreadyExists }

// IsConflict reports whether err says Conflict.
func IsConflict(err error) bool { return ReasonOf(err) == ReasonConflict }

// IsInvalid reports whether err says Invalid.
func IsInvalid(err error) bool { return ReasonOf(err) == ReasonInvalid }

// IsExpired reports whether err says Expired.
func IsExpired(err error) bool { return ReasonOf(err) == ReasonExpired }

// IsTooMany reports whether err says TooMany.
func IsTooMany(err error) bool { return ReasonOf(err) == ReasonTooMany }

// IsForbidden reports whether err says Forbidden.
func IsForbidden(err error) bool { return ReasonOf(err) == ReasonForbidden }

// IsUnauthenticated reports whether err says Unauthenticated.
func IsUnauthenticated(err error) bool { return ReasonOf(err) == ReasonUnauthenticated }

// IsFailedPrecondition reports whether err says FailedPrecondition.
func IsFailedPrecondition(err error) bool { return ReasonOf(err) == ReasonFailedPrecondition }

// IsUnavailable reports whether err says Unavailable.
func IsUnavailable(err error) bool { return ReasonOf(err) == ReasonUnavailable }

// IsUnimplemented reports whether err says Unimplemented.
func IsUnimplemented(err error) bool { return ReasonOf(err) == ReasonUnimplemented }

// IsTimeout reports whether err says Timeout.
func IsTimeout(err error) bool { return ReasonOf(err) == ReasonTimeout }

// IsCanceled reports whether err says Canceled.
func IsCanceled(err error) bool { return ReasonOf(err) == ReasonCanceled }

// IsInternal reports whether err says Internal.
func IsInternal(err error) bool { return ReasonOf(err) == ReasonInternal }
