package repo

import (
	"regexp"
	"slices"
	"strings"
)

const (
	tracingDoc  = "docs/tracing.md"
	tracingKeys = "client/tracing/keys.go"
)

var (
	keyLiteral = regexp.MustCompile(`attribute\.Key\("([^"]+)"\)`)
	inTicks    = regexp.MustCompile("`([^`]+)`")
)

// spans holds the page about tracing to the source: it lists every attribute that there is and no other, and every span
// that it names is somewhere in the source.
func spans(t *tree) []string {
	doc, ok := t.text[tracingDoc]
	if !ok {
		return nil
	}
	var out, listed []string
	for _, name := range firstColumn(doc, "| attribute |") {
		listed = append(listed, name)
		if !strings.Contains(t.text[tracingKeys], `attribute.Key("`+name+`")`) {
			out = append(out, tracingDoc+": attribute "+name+" is not in "+tracingKeys)
		}
	}
	for _, found := range keyLiteral.FindAllStringSubmatch(t.text[tracingKeys], -1) {
		if !slices.Contains(listed, found[1]) {
			out = append(out, tracingDoc+": attribute "+found[1]+" is missing")
		}
	}
	for _, name := range firstColumn(doc, "| span |") {
		if strings.Contains(name, "/") || t.literal(name) {
			continue // calls are named by the proto
		}
		out = append(out, tracingDoc+": no span is called "+name)
	}
	return out
}

// firstColumn is what stands in ticks in the first column of the table that begins with header.
func firstColumn(doc, header string) []string {
	_, table, _ := strings.Cut(doc, "\n"+header)
	var out []string
	for i, line := range strings.Split(table, "\n") {
		if i == 0 {
			continue // the rest of the header
		}
		if !strings.HasPrefix(line, "|") {
			break
		}
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, found := range inTicks.FindAllStringSubmatch(cell, -1) {
			out = append(out, found[1])
		}
	}
	return out
}

// literal reports whether code that is no test has the text as a string, or, of the scheduler's extension points, which
// are put together, its middle.
func (t *tree) literal(text string) bool {
	middle := strings.TrimSuffix(strings.TrimPrefix(text, "Run"), "Plugins")
	return slices.ContainsFunc(t.files, func(f *goFile) bool {
		if f.test || f.generated {
			return false
		}
		return strings.Contains(t.text[f.path], `"`+text+`"`) || strings.Contains(t.text[f.path], `"`+middle+`"`)
	})
}
