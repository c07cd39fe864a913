package repo

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// part is what a document and its translation have in common: a heading's depth, a line of code, a row of a table, a mark.
type part struct {
	line int
	text string
}

var headingOf = regexp.MustCompile(`^(#+) `)

// skeleton lists the parts of a document in order.
func skeleton(text string) []part {
	var out []part
	n, fenced := 0, false
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		switch m := headingOf.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			out = append(out, part{n, line})
		case fenced:
			out = append(out, part{n, line})
		case m != nil:
			out = append(out, part{n, "heading " + m[1]})
		case strings.HasPrefix(line, "|"):
			out = append(out, part{n, fmt.Sprintf("row of %d cells", strings.Count(line, "|")-1)})
		case strings.HasPrefix(line, "<!--"):
			out = append(out, part{n, line})
		}
	}
	return out
}

// translations wants X.zh-CN.md to be in step with X.md: the same headings, code, tables and marks in the same order. Where
// they part is found once per document, since all that follows differs too.
func translations(t *tree) []string {
	const suffix = ".zh-CN.md"
	var out []string
	for _, doc := range t.paths {
		base, ok := strings.CutSuffix(doc, suffix)
		if !ok {
			continue
		}
		original := base + ".md"
		if !slices.Contains(t.paths, original) {
			out = append(out, fmt.Sprintf("%s: there is no %s", doc, original))
			continue
		}
		want, have := skeleton(t.text[original]), skeleton(t.text[doc])
		for i := range max(len(want), len(have)) {
			switch {
			case i >= len(have):
				out = append(out, fmt.Sprintf("%s: ends before %s:%d: %s", doc, original, want[i].line, want[i].text))
			case i >= len(want):
				out = append(out, fmt.Sprintf("%s:%d: %s has nothing like it: %s", doc, have[i].line, original, have[i].text))
			case want[i].text != have[i].text:
				out = append(out, fmt.Sprintf("%s:%d: %q, but %s:%d has %q", doc, have[i].line, have[i].text, original, want[i].line, want[i].text))
			default:
				continue
			}
			break
		}
	}
	return out
}
