package repo

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// packageDocs wants one comment per package that begins with its name.
func packageDocs(t *tree) []string {
	var out []string
	for _, p := range t.packages() {
		name := p[0].ast.Name.Name
		if strings.HasSuffix(name, "_test") {
			continue
		}
		var with []*goFile
		for _, f := range p {
			if f.ast.Doc != nil {
				with = append(with, f)
			}
		}
		begins := []string{"Package " + name}
		if name == "main" {
			program := path.Base(p[0].dir)
			begins = []string{"Command " + program, strings.ToUpper(program[:1]) + program[1:]}
		}
		switch {
		case len(with) == 0:
			out = append(out, fmt.Sprintf("%s: package %s has no comment", p[0].dir, name))
		case len(with) > 1:
			out = append(out, fmt.Sprintf("%s: a second comment of package %s", with[1].path, name))
		case !slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(with[0].ast.Doc.Text(), b+" ") }):
			out = append(out, fmt.Sprintf("%s: the package comment does not begin with %q", with[0].path, begins[0]))
		}
	}
	return out
}

// exportedDocs wants a comment on everything exported: functions, methods, types, methods of interfaces (of a single one
// its type's does), constants and variables (a group's comment does for its members), and the fields of every Config.
// What the error interface asks for explains itself.
func exportedDocs(t *tree) []string {
	var out []string
	for _, f := range t.written() {
		if f.test || f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				method := d.Recv != nil
				switch {
				case !d.Name.IsExported() || d.Doc != nil || method && !ast.IsExported(receiver(d)):
				case method && (d.Name.Name == "Error" || d.Name.Name == "Unwrap"):
				default:
					out = append(out, f.at(d, "%s has no comment", declared(d)[0]))
				}
			case *ast.GenDecl:
				out = append(out, undocumented(f, d)...)
			}
		}
	}
	return out
}

func undocumented(f *goFile, d *ast.GenDecl) []string {
	var out []string
	single := !d.Lparen.IsValid() && d.Doc != nil
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			if s.Doc == nil && s.Comment == nil && !single {
				out = append(out, f.at(s, "%s has no comment", s.Name.Name))
			}
			out = append(out, undocumentedMembers(f, s)...)
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if n.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
					out = append(out, f.at(s, "%s has no comment", n.Name))
				}
			}
		}
	}
	return out
}

func undocumentedMembers(f *goFile, s *ast.TypeSpec) []string {
	var list []*ast.Field
	switch x := s.Type.(type) {
	case *ast.StructType:
		if s.Name.Name == "Config" {
			list = x.Fields.List
		}
	case *ast.InterfaceType:
		list = slices.DeleteFunc(slices.Clone(x.Methods.List), func(m *ast.Field) bool { return len(m.Names) == 0 })
		if len(list) == 1 {
			return nil
		}
	}
	var out []string
	for i, m := range list {
		// One comment may speak for the fields that follow it on the next lines.
		grouped := i > 0 && f.line(m) == f.fset.Position(list[i-1].End()).Line+1 && (list[i-1].Doc != nil || list[i-1].Comment != nil)
		if len(m.Names) == 0 || !m.Names[0].IsExported() || m.Doc != nil || m.Comment != nil || grouped {
			continue
		}
		out = append(out, f.at(m, "%s.%s has no comment", s.Name.Name, m.Names[0].Name))
	}
	return out
}
