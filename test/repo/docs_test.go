package repo

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// glossaryRows is how many terms the glossary has at least.
const glossaryRows = 50

// documents are the pages for people.
func (t *tree) documents() []string {
	return slices.DeleteFunc(slices.Clone(t.paths), func(p string) bool {
		return path.Ext(p) != ".md" || path.Dir(p) != "." && !under(p, "docs", "tools", "examples")
	})
}

// code is a piece of a document that is set as code.
type code struct {
	line   int
	text   string
	fenced string // the language of its fence; empty within a line
	inline bool
}

var backticks = regexp.MustCompile("`([^`]+)`")

// codeOf returns what a document sets as code: what stands between backticks, and the lines of fences.
func codeOf(text string) []code {
	var out []code
	fence, inFence := "", false
	n := 0
	for line := range strings.Lines(text) {
		n++
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			inFence = !inFence
			fence = strings.TrimPrefix(trimmed, "```")
		case inFence:
			out = append(out, code{line: n, text: strings.TrimRight(line, "\n"), fenced: fence})
		default:
			for _, m := range backticks.FindAllStringSubmatch(line, -1) {
				out = append(out, code{line: n, text: m[1], inline: true})
			}
		}
	}
	return out
}

var (
	reference = regexp.MustCompile(`^(\.?[\w*][\w.*-]*(?:/[\w.*-]+)*/?)(?::([A-Za-z_][\w.]*))?(?:\(\))?$`)
	link      = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
)

// references wants every path, symbol and link that a document names to exist.
func references(t *tree) []string {
	var out []string
	for _, doc := range t.documents() {
		for _, c := range codeOf(t.text[doc]) {
			if !c.inline {
				continue
			}
			if problem := t.missing(c.text); problem != "" {
				out = append(out, fmt.Sprintf("%s:%d: %s", doc, c.line, problem))
			}
		}
		n := 0
		for line := range strings.Lines(t.text[doc]) {
			n++
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if !strings.Contains(m[1], "://") && !t.exists(path.Join(path.Dir(doc), m[1])) {
					out = append(out, fmt.Sprintf("%s:%d: link to %s leads nowhere", doc, n, m[1]))
				}
			}
		}
	}
	return out
}

// missing says what is wrong with a piece of code that is a reference into the tree; "" where nothing is, or where it is
// no reference.
func (t *tree) missing(text string) string {
	m := reference.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	name, symbol := m[1], m[2]
	first, _, nested := strings.Cut(name, "/")
	source := slices.Contains([]string{".go", ".proto", ".md"}, path.Ext(name))
	if !source && !(nested || symbol != "") || !source && !t.exists(first) {
		return ""
	}
	switch {
	case !t.exists(name):
		return name + " does not exist"
	case symbol != "" && !t.declares(strings.TrimSuffix(name, "/"), symbol):
		return name + " does not declare " + symbol
	}
	return ""
}

// declares reports whether a file, or a package in a folder, declares a symbol.
func (t *tree) declares(name, symbol string) bool {
	if path.Ext(name) != ".go" && !t.dirs[name] {
		last := symbol[strings.LastIndex(symbol, ".")+1:]
		return regexp.MustCompile(`\b` + regexp.QuoteMeta(last) + `\b`).MatchString(t.text[name])
	}
	return slices.ContainsFunc(t.files, func(f *goFile) bool {
		return (f.path == name || f.dir == name && !f.test) && slices.ContainsFunc(f.ast.Decls, func(d ast.Decl) bool {
			return slices.Contains(declared(d), symbol)
		})
	})
}

// glossary wants enough terms, each with a path in Trireme. That the paths exist, references holds.
func glossary(t *tree) []string {
	const file = "docs/glossary.md"
	var out []string
	rows, n := 0, 0
	for line := range strings.Lines(t.text[file]) {
		n++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| Term") || strings.HasPrefix(line, "|-") {
			continue
		}
		rows++
		if len(cells) != 3 {
			out = append(out, fmt.Sprintf("%s:%d: %d cells, want 3", file, n, len(cells)))
			continue
		}
		if !slices.ContainsFunc(codeOf(cells[2]), func(c code) bool {
			m := reference.FindStringSubmatch(c.text)
			return m != nil && strings.Contains(m[1], "/") && t.missing(c.text) == ""
		}) {
			out = append(out, fmt.Sprintf("%s:%d: %s: no path in Trireme", file, n, strings.TrimSpace(cells[0])))
		}
	}
	if rows < glossaryRows {
		out = append(out, fmt.Sprintf("%s: %d terms, want %d", file, rows, glossaryRows))
	}
	return out
}

var (
	makeTarget = regexp.MustCompile(`(?:^|[\s;(])make ([a-z][a-z-]*)`)
	// quotedTarget is a command that a message or comment in Go names.
	quotedTarget = regexp.MustCompile("[`'\"]make ([a-z][a-z-]*)\\\\?[`'\"]")
	ruleOf       = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
)

// targets wants every make target that a document or a message names to be one of the Makefile.
func targets(t *tree) []string {
	have := map[string]bool{}
	for _, m := range ruleOf.FindAllStringSubmatch(t.text["Makefile"], -1) {
		have[m[1]] = true
	}
	var out []string
	for _, f := range t.files {
		n := 0
		for line := range strings.Lines(t.text[f.path]) {
			n++
			for _, m := range quotedTarget.FindAllStringSubmatch(line, -1) {
				if !have[m[1]] {
					out = append(out, fmt.Sprintf("%s:%d: make %s is no target", f.path, n, m[1]))
				}
			}
		}
	}
	for _, doc := range t.documents() {
		for _, c := range codeOf(t.text[doc]) {
			for _, m := range makeTarget.FindAllStringSubmatch(c.text, -1) {
				if !have[m[1]] {
					out = append(out, fmt.Sprintf("%s:%d: make %s is no target", doc, c.line, m[1]))
				}
			}
		}
	}
	return out
}
