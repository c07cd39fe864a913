package manifest

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// yamlWriter is a sink that prints block YAML as kubectl does: two spaces, list items not indented, text over several
// lines as a literal block, and quotes around whatever would be read as something else than text.
type yamlWriter struct {
	out   []byte
	stack []yamlBlock
	// place says what stands before the next value.
	place yamlPlace
}

type yamlBlock struct {
	list   bool
	indent int
	empty  bool
}

type yamlPlace uint8

const (
	atStart     yamlPlace = iota // nothing: the beginning of the document
	afterKey                     // "key:"
	afterDash                    // "-"
	betweenKeys                  // a finished value
)

// document returns what was printed, with a line break at the end.
func (w *yamlWriter) document() []byte {
	if len(w.out) == 0 || w.out[len(w.out)-1] != '\n' {
		w.out = append(w.out, '\n')
	}
	return w.out
}

// line begins a line at an indentation, unless the text stands there already, behind a dash or at the beginning.
func (w *yamlWriter) line(indent int) {
	switch w.place {
	case atStart:
		return
	case afterDash:
		w.out = append(w.out, ' ')
		return
	}
	if w.out[len(w.out)-1] != '\n' {
		w.out = append(w.out, '\n')
	}
	for range indent {
		w.out = append(w.out, ' ')
	}
}

// item begins a list item where the innermost block is a list.
func (w *yamlWriter) item() {
	if len(w.stack) == 0 {
		return
	}
	top := &w.stack[len(w.stack)-1]
	if !top.list {
		return
	}
	w.line(top.indent)
	w.out = append(w.out, '-')
	w.place = afterDash
	top.empty = false
}

// begin opens a block. Nothing is printed before its first key or item: an empty one is written {} or [].
func (w *yamlWriter) begin(list bool) {
	w.item()
	indent := 0
	if len(w.stack) > 0 {
		parent := w.stack[len(w.stack)-1]
		indent = parent.indent + 2
		if list && !parent.list {
			indent = parent.indent
		}
	}
	w.stack = append(w.stack, yamlBlock{list: list, indent: indent, empty: true})
}

func (w *yamlWriter) end(empty string) {
	top := w.stack[len(w.stack)-1]
	w.stack = w.stack[:len(w.stack)-1]
	if top.empty {
		w.plain(empty)
	}
}

func (w *yamlWriter) beginObject() { w.begin(false) }
func (w *yamlWriter) endObject()   { w.end("{}") }
func (w *yamlWriter) beginList()   { w.begin(true) }
func (w *yamlWriter) endList()     { w.end("[]") }

// longestKey that may stand before its colon; YAML's readers look no further than 1024 characters.
const longestKey = 1000

func (w *yamlWriter) key(name string) {
	top := &w.stack[len(w.stack)-1]
	w.line(top.indent)
	top.empty = false
	isPlain := plainText(name)
	printed := len(w.out)
	if isPlain {
		w.out = append(w.out, name...)
	} else {
		w.out = appendQuoted(w.out, name)
	}
	if len(w.out)-printed > longestKey {
		w.out = append(w.out[:printed], "? "...)
		w.out = appendQuoted(w.out, name)
		w.out = append(w.out, '\n')
		for range top.indent {
			w.out = append(w.out, ' ')
		}
	}
	w.out = append(w.out, ':')
	w.place = afterKey
}

// plain prints a scalar or an empty block behind what it belongs to.
func (w *yamlWriter) plain(value string) {
	w.space()
	w.out = append(w.out, value...)
	w.place = betweenKeys
}

func (w *yamlWriter) space() {
	if w.place == afterKey || w.place == afterDash {
		w.out = append(w.out, ' ')
	}
}

func (w *yamlWriter) integer(digits string) { w.item(); w.plain(digits) }
func (w *yamlWriter) float(value float64)   { w.item(); w.plain(formatFloat(value)) }
func (w *yamlWriter) boolean(value bool)    { w.item(); w.plain(strconv.FormatBool(value)) }
func (w *yamlWriter) null()                 { w.item(); w.plain("null") }

func (w *yamlWriter) text(value string) {
	w.item()
	switch {
	case plainText(value):
		w.plain(value)
	case blockText(value) && len(w.stack) > 0:
		w.block(value)
	default:
		w.space()
		w.out = appendQuoted(w.out, value)
		w.place = betweenKeys
	}
}

// block prints text as a literal block.
func (w *yamlWriter) block(value string) {
	w.space()
	w.out = append(w.out, '|')
	body := strings.TrimRight(value, "\n")
	switch trailing := len(value) - len(body); trailing {
	case 0:
		w.out = append(w.out, '-')
	case 1:
	default:
		w.out = append(w.out, '+')
	}
	indent := w.stack[len(w.stack)-1].indent + 2
	for text := range strings.SplitSeq(strings.TrimSuffix(value, "\n"), "\n") {
		w.out = append(w.out, '\n')
		if text != "" {
			for range indent {
				w.out = append(w.out, ' ')
			}
			w.out = append(w.out, text...)
		}
	}
	w.out = append(w.out, '\n')
	w.place = betweenKeys
}

// blockText reports whether a literal block gives the text back: several lines of printable characters, the first of
// which begins at the margin. Lines that end in spaces are better seen in quotes.
func blockText(s string) bool {
	if !strings.Contains(s, "\n") || s[0] == ' ' || s[0] == '\n' || s[0] == '\t' {
		return false
	}
	if strings.Trim(s, "\n") == "" || strings.Contains(s, " \n") || strings.HasSuffix(s, " ") || strings.Contains(s, "\t\n") || strings.HasSuffix(s, "\t") {
		return false
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && !printable(r) {
			return false
		}
	}
	return true
}

func printable(r rune) bool {
	return r != utf8.RuneError && r != 0xfeff && unicode.IsPrint(r)
}

// otherReaders of YAML take such text for numbers of base 60 and for dates.
var otherReaders = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$|^[0-9]{4}-[0-9]`)

// plainText reports whether a text can stand without quotes: it is read back as text, and as this text.
func plainText(s string) bool {
	if shape, _ := resolvePlain(s); shape != shapeText {
		return false
	}
	switch s[0] {
	case '?', ':', ',', '[', ']', '{', '}', '#', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`', ' ', '=', '<':
		return false
	case '-':
		if len(s) == 1 || s[1] == ' ' || strings.HasPrefix(s, "---") {
			return false
		}
	}
	if otherReaders.MatchString(s) || strings.HasPrefix(s, "...") || strings.HasSuffix(s, " ") || strings.HasSuffix(s, ":") ||
		strings.Contains(s, ": ") || strings.Contains(s, " #") {
		return false
	}
	for _, r := range s {
		if !printable(r) {
			return false
		}
	}
	return true
}
