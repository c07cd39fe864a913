package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// jsonReader reads JSON values into trees and knows the line of each.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	// counted is the offset up to which line breaks have been counted.
	counted int64
	line    int
}

func newJSONReader(data []byte) *jsonReader {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return &jsonReader{data: data, decoder: decoder, line: 1}
}

// readJSON reads all the values of a text: one after another is what streams of JSON are.
func readJSON(data []byte) ([]node, *Error) {
	// encoding/json would replace bad bytes in silence.
	if i := invalidUTF8(data); i >= 0 {
		return nil, &Error{Line: 1 + bytes.Count(data[:i], []byte("\n")), Message: "not valid UTF-8"}
	}
	var nodes []node
	reader := newJSONReader(data)
	for {
		n, err := reader.value(0)
		if errors.Is(err, io.EOF) {
			return nodes, nil
		}
		if err != nil {
			return nodes, reader.syntaxError(err)
		}
		nodes = append(nodes, n)
	}
}

func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

func (r *jsonReader) syntaxError(err error) *Error {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		r.advance(min(syntax.Offset, int64(len(r.data))))
		return &Error{Line: r.line, Message: "not valid JSON: " + syntax.Error()}
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.advance(int64(len(r.data)))
		return &Error{Line: r.line, Message: "not valid JSON: the text ends inside a value"}
	default:
		r.advance(r.decoder.InputOffset())
		return &Error{Line: r.line, Message: "not valid JSON: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
}

// advance moves the line counter to an offset. Offsets only grow.
func (r *jsonReader) advance(offset int64) {
	if offset > r.counted {
		r.line += bytes.Count(r.data[r.counted:offset], []byte("\n"))
		r.counted = offset
	}
}

// token returns the next token. Tokens hold no line breaks, so the line where one ends is the line where it stands.
func (r *jsonReader) token() (json.Token, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	r.advance(r.decoder.InputOffset())
	return token, nil
}

func (r *jsonReader) value(depth int) (node, error) {
	token, err := r.token()
	if err != nil {
		return node{}, err
	}
	return r.rest(token, depth)
}

// rest reads the value that begins with token.
func (r *jsonReader) rest(token json.Token, depth int) (node, error) {
	if depth > maxDepth {
		return node{}, fmt.Errorf("values are nested more than %d deep", maxDepth)
	}
	n := node{line: r.line}
	switch t := token.(type) {
	case nil:
		n.shape = shapeNull
	case bool:
		n.shape, n.text = shapeBool, "false"
		if t {
			n.text = "true"
		}
		n.source = n.text
	case json.Number:
		n.shape, n.text, n.source = shapeInteger, t.String(), t.String()
		if strings.ContainsAny(n.text, ".eE") {
			n.shape = shapeFloat
		}
	case string:
		n.shape, n.text, n.source = shapeText, t, t
	case json.Delim:
		var err error
		if t == '{' {
			n.shape = shapeObject
			err = r.object(&n, depth)
		} else {
			n.shape = shapeList
			err = r.list(&n, depth)
		}
		// The end of the input is good news only between values.
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	return n, nil
}

func (r *jsonReader) object(n *node, depth int) error {
	for r.decoder.More() {
		token, err := r.token()
		if err != nil {
			return err
		}
		e := entry{key: token.(string), line: r.line}
		if e.value, err = r.value(depth + 1); err != nil {
			return err
		}
		n.entries = append(n.entries, e)
	}
	_, err := r.token()
	return err
}

func (r *jsonReader) list(n *node, depth int) error {
	for r.decoder.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	_, err := r.token()
	return err
}
