package manifest

import (
	"strconv"
	"unicode/utf8"
)

// jsonWriter is a sink that prints JSON: compact, or indented where indent is set.
type jsonWriter struct {
	out    []byte
	indent string
	depth  int
	// first is whether nothing stands yet in the innermost object or list.
	first bool
	// afterKey is whether the next value belongs to a key.
	afterKey bool
}

// next prepares for the next key or list item.
func (w *jsonWriter) next() {
	if w.afterKey {
		w.afterKey = false
		return
	}
	if w.depth == 0 {
		return
	}
	if !w.first {
		w.out = append(w.out, ',')
	}
	w.first = false
	w.newline()
}

func (w *jsonWriter) newline() {
	if w.indent == "" {
		return
	}
	w.out = append(w.out, '\n')
	for range w.depth {
		w.out = append(w.out, w.indent...)
	}
}

func (w *jsonWriter) begin(bracket byte) {
	w.next()
	w.out = append(w.out, bracket)
	w.depth++
	w.first = true
}

func (w *jsonWriter) end(bracket byte) {
	w.depth--
	if !w.first {
		w.newline()
	}
	w.first = false
	w.out = append(w.out, bracket)
}

func (w *jsonWriter) beginObject() { w.begin('{') }
func (w *jsonWriter) endObject()   { w.end('}') }
func (w *jsonWriter) beginList()   { w.begin('[') }
func (w *jsonWriter) endList()     { w.end(']') }

func (w *jsonWriter) key(name string) {
	w.next()
	w.out = appendQuoted(w.out, name)
	w.out = append(w.out, ':')
	if w.indent != "" {
		w.out = append(w.out, ' ')
	}
	w.afterKey = true
}

func (w *jsonWriter) text(value string) {
	w.next()
	w.out = appendQuoted(w.out, value)
}

func (w *jsonWriter) integer(digits string) {
	w.next()
	w.out = append(w.out, digits...)
}

func (w *jsonWriter) float(value float64) {
	w.next()
	w.out = append(w.out, formatFloat(value)...)
}

func (w *jsonWriter) boolean(value bool) {
	w.next()
	w.out = strconv.AppendBool(w.out, value)
}

func (w *jsonWriter) null() {
	w.next()
	w.out = append(w.out, "null"...)
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends a string in double quotes, as JSON and YAML both read it. Only what may not or should not stand
// in a line is escaped.
func appendQuoted(out []byte, s string) []byte {
	out = append(out, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
				i++
				continue
			}
			out = append(out, s[start:i]...)
			switch c {
			case '"', '\\':
				out = append(out, '\\', c)
			case '\n':
				out = append(out, '\\', 'n')
			case '\t':
				out = append(out, '\\', 't')
			case '\r':
				out = append(out, '\\', 'r')
			default:
				out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		// Line separators, control characters, the byte order mark and bad bytes: YAML takes none of them in a line.
		if escapes := r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == utf8.RuneError && size == 1 ||
			r == 0xfffe || r == 0xffff; escapes {
			out = append(out, s[start:i]...)
			out = append(out, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
			start = i + size
		}
		i += size
	}
	out = append(out, s[start:]...)
	return append(out, '"')
}
