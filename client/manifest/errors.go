package manifest

import (
	"fmt"
	"strings"
)

// Error is one thing wrong in a manifest, with the place where a person finds it.
type Error struct {
	// File as given to Decode; "standard input" for stdin; empty for single objects (FromJSON).
	File string
	// Line in the file, from 1; 0 where unknown.
	Line int
	// Document in the file, from 1; 0 where the error concerns the file as a whole.
	Document int
	// Path of the field in Kubernetes' spelling: spec.containers[0].image. Empty where no field is meant.
	Path string
	// Message says what is wrong and what was expected.
	Message string
}

// Error formats as FILE:LINE: document N: PATH: MESSAGE, without the parts that are unknown.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Document > 0 {
		fmt.Fprintf(&b, "document %d: ", e.Document)
	}
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Errors are all the things wrong in a manifest, in the order of the text; never empty. errors.As finds an *Error in
// it, and errors.As with *Errors the whole list.
type Errors []*Error

// Error lists the errors, one a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the single errors to errors.Is and errors.As.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, err := range e {
		list[i] = err
	}
	return list
}

// err returns the list as an error, or nil when it is empty.
func (e Errors) err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}
