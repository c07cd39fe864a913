package repo

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// module is what a go.mod says.
type module struct {
	dir, path string
	requires  map[string]string // version by path
	direct    map[string]bool
	replaces  map[string]string
}

// parseModule reads a go.mod as the go command formats it.
func parseModule(file, text string) module {
	m := module{dir: path.Dir(file), requires: map[string]string{}, direct: map[string]bool{}, replaces: map[string]string{}}
	block := ""
	for line := range strings.Lines(text) {
		code, comment, _ := strings.Cut(line, "//")
		words := strings.Fields(code)
		switch {
		case len(words) == 0:
			continue
		case words[0] == ")":
			block = ""
			continue
		case len(words) == 2 && words[1] == "(":
			block = words[0]
			continue
		case block == "":
			m.add(words[0], words[1:], comment)
		default:
			m.add(block, words, comment)
		}
	}
	return m
}

func (m *module) add(verb string, words []string, comment string) {
	switch {
	case verb == "module" && len(words) == 1:
		m.path = words[0]
	case verb == "require" && len(words) == 2:
		m.requires[words[0]] = words[1]
		m.direct[words[0]] = !strings.Contains(comment, "indirect")
	case verb == "replace" && len(words) == 3:
		m.replaces[words[0]] = words[2]
	}
}

// workspaceModules are the go.mod files outside tools.
func (t *tree) workspaceModules() []module {
	var out []module
	for _, p := range t.paths {
		if path.Base(p) == "go.mod" && !under(p, "tools") && !strings.Contains(p, "testdata/") {
			out = append(out, parseModule(p, t.text[p]))
		}
	}
	return out
}

// modules holds go.mod files to what makes each of them build alone as it does in the workspace: its path is its folder,
// siblings are replaced by their folders, and what one module asks for by itself has one version in all. Of what only
// others need, tools/standalone.sh compares what is compiled in.
func modules(t *tree) []string {
	var out []string
	versions, direct := map[string]map[string][]string{}, map[string]bool{}
	for _, m := range t.workspaceModules() {
		file := m.dir + "/go.mod"
		if m.path != ours+m.dir {
			out = append(out, fmt.Sprintf("%s: module %s, want %s", file, m.path, ours+m.dir))
		}
		for dep, version := range m.requires {
			if sibling, ok := strings.CutPrefix(dep, ours); ok {
				want, err := filepath.Rel(m.dir, sibling)
				if err != nil || m.replaces[dep] != filepath.ToSlash(want) {
					out = append(out, fmt.Sprintf("%s: replaces %s by %q, want %s", file, dep, m.replaces[dep], want))
				}
				continue
			}
			direct[dep] = direct[dep] || m.direct[dep]
			if versions[dep] == nil {
				versions[dep] = map[string][]string{}
			}
			versions[dep][version] = append(versions[dep][version], m.dir)
		}
	}
	for dep, by := range versions {
		if len(by) < 2 || !direct[dep] {
			continue
		}
		var all []string
		for v, dirs := range by {
			all = append(all, v+" in "+strings.Join(dirs, ", "))
		}
		sort.Strings(all)
		out = append(out, fmt.Sprintf("%s: %s", dep, strings.Join(all, "; ")))
	}
	return out
}

// workspace holds go.work to all modules but those of tools, whose dependencies must not change ours.
func workspace(t *tree) []string {
	var used, have, out []string
	for line := range strings.Lines(t.text["go.work"]) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "./"); ok {
			used = append(used, dir)
		}
	}
	for _, m := range t.workspaceModules() {
		have = append(have, m.dir)
		if !slices.Contains(used, m.dir) {
			out = append(out, "go.work: does not use "+m.dir)
		}
	}
	for _, dir := range used {
		if !slices.Contains(have, dir) {
			out = append(out, "go.work: uses "+dir)
		}
	}
	return out
}
