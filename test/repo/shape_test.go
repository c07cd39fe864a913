package repo

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	mainLines = 60
	fileLines = 600
)

// longFiles may be longer than fileLines, each for its reason.
func longFiles() map[string]string {
	return map[string]string{}
}

// services holds every service to one shape: Config with AddFlags and Validate, New, Run, and a main of its own.
func services(t *tree) []string {
	var out []string
	for _, dir := range t.subfolders("services") {
		has := map[string]bool{}
		for _, f := range t.written() {
			if f.dir != dir || f.test {
				continue
			}
			for _, d := range f.ast.Decls {
				for _, name := range declared(d) {
					has[name] = true
				}
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "Run" && fn.Recv != nil && isRun(fn) {
					has["Run(ctx context.Context) error"] = true
				}
			}
		}
		for _, want := range []string{"Config", "Config.AddFlags", "Config.Validate", "New", "Run(ctx context.Context) error"} {
			if !has[want] {
				out = append(out, dir+": exports no "+want)
			}
		}
		if main := dir + "/cmd/" + path.Base(dir) + "/main.go"; !t.exists(main) {
			out = append(out, main+": does not exist")
		}
	}
	return out
}

// subfolders are the folders right below one.
func (t *tree) subfolders(of string) []string {
	var out []string
	for d := range t.dirs {
		if path.Dir(d) == of {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out
}

// isRun reports whether a method is Run(ctx context.Context) error.
func isRun(fn *ast.FuncDecl) bool {
	params, results := fn.Type.Params, fn.Type.Results
	if params.NumFields() != 1 || results.NumFields() != 1 {
		return false
	}
	result, ok := results.List[0].Type.(*ast.Ident)
	return ok && result.Name == "error" && isSelector(params.List[0].Type, "context", "Context")
}

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && s.Sel.Name == name
}

// declared are the names that a declaration brings: Name, Type.Method, Type.Field, and Method alone.
func declared(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || len(d.Recv.List) == 0 {
			return []string{d.Name.Name}
		}
		return []string{receiver(d) + "." + d.Name.Name, d.Name.Name}
	case *ast.GenDecl:
		var out []string
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				out = append(out, s.Name.Name)
				for _, m := range members(s) {
					out = append(out, s.Name.Name+"."+m)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					out = append(out, n.Name)
				}
			}
		}
		return out
	}
	return nil
}

func receiver(fn *ast.FuncDecl) string {
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// members are a struct's fields or an interface's methods.
func members(s *ast.TypeSpec) []string {
	var list *ast.FieldList
	switch x := s.Type.(type) {
	case *ast.StructType:
		list = x.Fields
	case *ast.InterfaceType:
		list = x.Methods
	default:
		return nil
	}
	var out []string
	for _, f := range list.List {
		for _, n := range f.Names {
			out = append(out, n.Name)
		}
	}
	return out
}

// mains keeps programs to a page: load the configuration, build, run.
func mains(t *tree) []string {
	var out []string
	for _, f := range t.written() {
		if f.ast.Name.Name != "main" || path.Base(f.path) != "main.go" || !under(f.path, "cmd", "services") {
			continue
		}
		if n := strings.Count(t.text[f.path], "\n"); n > mainLines {
			out = append(out, fmt.Sprintf("%s: %d lines, at most %d", f.path, n, mainLines))
		}
	}
	return out
}

// sizes keeps files readable in one go.
func sizes(t *tree) []string {
	var out []string
	for _, f := range t.written() {
		n := strings.Count(t.text[f.path], "\n")
		_, allowed := longFiles()[f.path]
		if n > fileLines && !allowed {
			out = append(out, fmt.Sprintf("%s: %d lines, at most %d", f.path, n, fileLines))
		}
	}
	return out
}

// packageNames refuses names that say nothing.
func packageNames(t *tree) []string {
	empty := []string{"util", "utils", "common", "helper", "helpers", "base", "types", "misc", "shared", "lib"}
	var out []string
	for _, p := range t.packages() {
		name := strings.TrimSuffix(p[0].ast.Name.Name, "_test")
		if slices.Contains(empty, name) {
			out = append(out, p[0].dir+": package "+name+" names nothing")
		}
		if base := path.Base(p[0].dir); name != "main" && base != name && !p[0].test && strings.Contains(p[0].dir, "/") {
			out = append(out, p[0].dir+": holds package "+name)
		}
	}
	return slices.Compact(out)
}

// inits refuses what runs before main: wiring is explicit.
func inits(t *tree) []string {
	var out []string
	for _, f := range t.written() {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				out = append(out, f.at(fn, "func init"))
			}
		}
	}
	return out
}

// sleeps refuses time.Sleep outside of tests: what waits, waits for an event or runs through kit/loop.
func sleeps(t *tree) []string {
	var out []string
	for _, f := range t.written() {
		if f.test || under(f.path, "test") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && isSelector(e, "time", "Sleep") {
				out = append(out, f.at(n, "time.Sleep"))
			}
			return true
		})
	}
	return out
}

var tagFlag = regexp.MustCompile(`(?m)^TAGS\w*\s*:?=\s*([a-z0-9_,]+)`)

// buildTags wants every tag of ours to be one that make test builds with: a test behind any other never runs.
func buildTags(t *tree) []string {
	known := map[string]bool{}
	for _, m := range tagFlag.FindAllStringSubmatch(t.text["Makefile"], -1) {
		for tag := range strings.SplitSeq(m[1], ",") {
			known[tag] = true
		}
	}
	for _, tag := range []string{"linux", "darwin", "windows", "unix", "amd64", "arm64", "race", "cgo"} {
		known[tag] = true
	}
	var out []string
	for _, f := range t.written() {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				if group.Pos() > f.ast.Package || !constraint.IsGoBuild(c.Text) {
					continue
				}
				expr, err := constraint.Parse(c.Text)
				if err != nil {
					out = append(out, f.at(c, "%v", err))
					continue
				}
				expr.Eval(func(tag string) bool {
					if !known[tag] {
						out = append(out, f.at(c, "make test does not build with the tag %s", tag))
					}
					return true
				})
			}
		}
	}
	return out
}
