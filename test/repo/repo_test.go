package repo

import (
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// check is one rule. What it finds is broken: path, perhaps a line, and what is wrong there.
type check struct {
	name string
	find func(*tree) []string
}

// checks lists every rule that a tree of files can break. The name is that of the bad tree in testdata.
func checks() []check {
	return []check{
		{"layers", layers},
		{"engines", engines},
		{"services", services},
		{"mains", mains},
		{"sizes", sizes},
		{"package-names", packageNames},
		{"package-docs", packageDocs},
		{"exported-docs", exportedDocs},
		{"inits", inits},
		{"sleeps", sleeps},
		{"build-tags", buildTags},
		{"modules", modules},
		{"workspace", workspace},
		{"references", references},
		{"glossary", glossary},
		{"spans", spans},
		{"targets", targets},
		{"metrics", metricTable},
		{"dashboards", dashboards},
		{"translations", translations},
	}
}

// root of the checkout, seen from this folder.
const root = "../.."

func realTree(t *testing.T) *tree {
	t.Helper()
	tr, err := readTree(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTree(t *testing.T) {
	tr := realTree(t)
	if len(tr.files) < 100 {
		t.Fatalf("%d Go files found: this is not the tree", len(tr.files))
	}
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			for _, finding := range c.find(tr) {
				t.Error(finding)
			}
		})
	}
}

// TestChecksFind runs every rule on a tree made to break it: it must find all that is wrong there and nothing else.
func TestChecksFind(t *testing.T) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			bad, want := badTree(t, filepath.Join("testdata", c.name+".txtar"))
			got := c.find(bad)
			sort.Strings(got)
			if len(want) == 0 {
				t.Fatal("nothing is wanted: the rule could not fail")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
	entries, err := fs.Glob(os.DirFS("testdata"), "*.txtar")
	if err != nil || len(entries) != len(checks()) {
		t.Errorf("%d bad trees for %d rules (%v)", len(entries), len(checks()), err)
	}
}

// badTree reads an archive whose file "want" lists the findings.
func badTree(t *testing.T, file string) (*tree, []string) {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files, want := fstest.MapFS{}, []string{}
	for _, f := range archive.Files {
		if f.Name == "want" {
			want = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
			continue
		}
		files[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	tr, err := readTree(files)
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(want)
	return tr, want
}
