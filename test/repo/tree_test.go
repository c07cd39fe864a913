package repo

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
)

// tree is the repository, read once.
type tree struct {
	text  map[string]string // by path, directories left out
	paths []string          // of text, sorted
	dirs  map[string]bool
	files []*goFile // in order of path; without what lies in testdata
}

// goFile is one parsed file. Of generated ones only the imports are.
type goFile struct {
	path, dir string
	test      bool // *_test.go
	generated bool
	ast       *ast.File
	fset      *token.FileSet
}

// readTree reads all but what make writes and what editors and git keep.
func readTree(fsys fs.FS) (*tree, error) {
	t := &tree{text: map[string]string{}, dirs: map[string]bool{}}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".")
		switch {
		case d.IsDir() && (p == "bin" || p == "build" || hidden && p != ".ci"):
			return fs.SkipDir
		case d.IsDir():
			t.dirs[p] = true
			return nil
		case !d.Type().IsRegular() || strings.HasSuffix(p, ".test") || strings.HasSuffix(p, ".tar"):
			return nil
		}
		data, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		t.text[p] = string(data)
		t.paths = append(t.paths, p)
		return t.parse(p, data)
	})
	if err != nil {
		return nil, err
	}
	sort.Strings(t.paths)
	slices.SortFunc(t.files, func(a, b *goFile) int { return strings.Compare(a.path, b.path) })
	return t, nil
}

func (t *tree) parse(p string, data []byte) error {
	if !strings.HasSuffix(p, ".go") || strings.Contains(p, "testdata/") {
		return nil
	}
	f := &goFile{
		path: p, dir: path.Dir(p), test: strings.HasSuffix(p, "_test.go"),
		generated: strings.HasPrefix(p, "proto/gen/"), fset: token.NewFileSet(),
	}
	mode := parser.ParseComments | parser.SkipObjectResolution
	if f.generated {
		mode = parser.ImportsOnly
	}
	var err error
	if f.ast, err = parser.ParseFile(f.fset, p, data, mode); err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	t.files = append(t.files, f)
	return nil
}

// written are the files that people write.
func (t *tree) written() []*goFile {
	return slices.DeleteFunc(slices.Clone(t.files), func(f *goFile) bool { return f.generated })
}

// packages groups the written files by folder and package name, external tests apart.
func (t *tree) packages() [][]*goFile {
	groups := map[string][]*goFile{}
	var order []string
	for _, f := range t.written() {
		key := f.dir + " " + f.ast.Name.Name
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], f)
	}
	var out [][]*goFile
	for _, key := range order {
		out = append(out, groups[key])
	}
	return out
}

// exists reports whether there is a file or folder; globs match at least one.
func (t *tree) exists(name string) bool {
	name = strings.TrimSuffix(name, "/")
	if _, ok := t.text[name]; ok || t.dirs[name] {
		return true
	}
	if !strings.ContainsAny(name, "*") {
		return false
	}
	matches := func(p string) bool {
		ok, err := path.Match(name, p)
		return ok && err == nil
	}
	for d := range t.dirs {
		if matches(d) {
			return true
		}
	}
	return slices.ContainsFunc(t.paths, matches)
}

func (f *goFile) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

// at begins a finding about a place in a file.
func (f *goFile) at(n ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", f.path, f.line(n), fmt.Sprintf(format, args...))
}

func (f *goFile) imports() []string {
	var out []string
	for _, i := range f.ast.Imports {
		out = append(out, strings.Trim(i.Path.Value, `"`))
	}
	return out
}

// under reports whether a path is in one of the folders, or is one of the files.
func under(p string, places ...string) bool {
	return slices.ContainsFunc(places, func(place string) bool {
		return p == place || strings.HasPrefix(p, strings.TrimSuffix(place, "/")+"/")
	})
}
