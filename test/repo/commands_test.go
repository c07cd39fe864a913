package repo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"trireme.dev/client/kind"
)

// command is one use of trireme in a document.
type command struct {
	where string
	words []string // verb first
}

var trireme = regexp.MustCompile(`(?:^|[\s;(])(?:bin/)?trireme ([a-z][a-z-]*[^|;&#]*)`)

// commandsOf finds the uses of trireme in what documents set as code.
func commandsOf(t *tree) []command {
	var out []command
	for _, doc := range t.documents() {
		for _, c := range codeOf(t.text[doc]) {
			if c.fenced == "mermaid" {
				continue
			}
			for _, m := range trireme.FindAllStringSubmatch(c.text, -1) {
				out = append(out, command{fmt.Sprintf("%s:%d", doc, c.line), strings.Fields(m[1])})
			}
		}
	}
	return out
}

// wrongCommands asks for the help of each command, and wants its flags there. help returns what `trireme WORDS --help`
// prints, or an error where there is no such command.
func wrongCommands(commands []command, help func(words ...string) (string, error)) []string {
	var out []string
	for _, c := range commands {
		var verb []string
		for _, w := range c.words {
			// Subcommands are lower-case words right after the verb: image load.
			if !regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(w) || len(verb) == 2 {
				break
			}
			verb = append(verb, w)
		}
		text, err := help(verb...)
		if err != nil {
			out = append(out, fmt.Sprintf("%s: trireme %s: %v", c.where, c.words[0], err))
			continue
		}
		for _, w := range c.words {
			if w == "--" {
				break
			}
			flag, _, _ := strings.Cut(w, "=")
			if strings.HasPrefix(flag, "-") && !hasFlag(text, flag) {
				out = append(out, fmt.Sprintf("%s: trireme %s has no %s", c.where, c.words[0], flag))
			}
		}
	}
	return out
}

// hasFlag reports whether a help text lists a flag: --name, -x, or several short ones as in -it.
func hasFlag(text, flag string) bool {
	listed := func(f string) bool {
		return regexp.MustCompile(`(?m)(^|[\s,])` + regexp.QuoteMeta(f) + `([\s,=\[]|$)`).MatchString(text)
	}
	if strings.HasPrefix(flag, "--") || listed(flag) {
		return listed(flag)
	}
	for _, short := range strings.TrimPrefix(flag, "-") {
		if !listed("-" + string(short)) {
			return false
		}
	}
	return true
}

// helpOf asks bin/trireme for the help of commands, each once. make test builds it before.
func helpOf(t *testing.T) func(words ...string) (string, error) {
	t.Helper()
	binary := os.Getenv("TRIREME_BINARY")
	if binary == "" {
		binary = filepath.Join(root, "bin/trireme")
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skipf("make build first: %v", err)
	}
	known := map[string]string{}
	return func(words ...string) (string, error) {
		key := strings.Join(words, " ")
		if text, ok := known[key]; ok {
			return text, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		text, err := exec.CommandContext(ctx, binary, append(slices.Clone(words), "--help")...).CombinedOutput()
		// Cobra answers an unknown command with the help of its parent.
		if err == nil && !strings.Contains(string(text), "trireme "+words[0]) {
			err = fmt.Errorf("no such command")
		}
		known[key] = string(text)
		return string(text), err
	}
}

// TestCommands runs bin/trireme with --help for every command that a document names.
func TestCommands(t *testing.T) {
	help := helpOf(t)
	commands := commandsOf(realTree(t))
	if len(commands) < 10 {
		t.Errorf("only %d commands found in the documents", len(commands))
	}
	for _, finding := range wrongCommands(commands, help) {
		t.Error(finding)
	}
}

func TestCommandsFinds(t *testing.T) {
	tr, _ := badTree(t, "testdata/commands/bad.txtar")
	got := wrongCommands(commandsOf(tr), func(words ...string) (string, error) {
		switch words[0] {
		case "get":
			return "trireme get\n  -o, --output format   how to print\n  -w, --watch   follow\n", nil
		case "exec":
			return "trireme exec\n  -i, --stdin\n  -t, --tty\n", nil
		}
		return "", fmt.Errorf("no such command")
	})
	want := []string{
		"README.md:1: trireme git: no such command",
		"README.md:3: trireme get has no --outputs",
		"README.md:5: trireme exec has no -ix",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

var rpcName = regexp.MustCompile(`\b(trireme(?:\.[a-z0-9]+)+\.[A-Z]\w*)/([A-Z]\w*)`)

// TestRPCNames wants every Service/Method that a document names to exist.
func TestRPCNames(t *testing.T) {
	kind.Builtin() // brings all files in
	found := 0
	tr := realTree(t)
	for _, doc := range tr.documents() {
		for _, m := range rpcName.FindAllStringSubmatch(tr.text[doc], -1) {
			found++
			d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(m[1]))
			if err != nil {
				t.Errorf("%s: %s: %v", doc, m[1], err)
				continue
			}
			if s, ok := d.(protoreflect.ServiceDescriptor); !ok || s.Methods().ByName(protoreflect.Name(m[2])) == nil {
				t.Errorf("%s: %s has no method %s", doc, m[1], m[2])
			}
		}
	}
	if found == 0 {
		t.Error("no RPC is named in any document: the test looks for the wrong thing")
	}
}

// TestReadmeKinds wants the README to list every kind with every apiVersion that manifests may use for it.
func TestReadmeKinds(t *testing.T) {
	readme := realTree(t).text["README.md"]
	kinds := kind.Builtin()
	for _, k := range kinds.All() {
		var versions []string
		for _, v := range kinds.Versions(k) {
			versions = append(versions, v.APIVersions...)
		}
		row := fmt.Sprintf("| %s | `%s` |", k.Name, strings.Join(versions, "`, `"))
		if !strings.Contains(readme, row) {
			t.Errorf("README.md lacks the row %s", row)
		}
	}
}

var metricRow = regexp.MustCompile("(?m)^\\| `([a-z]+\\.[a-z0-9_]+)` \\|")

// TestReadmeMetrics wants every number of the README to have a name that make bench prints.
func TestReadmeMetrics(t *testing.T) {
	tr := realTree(t)
	rows := metricRow.FindAllStringSubmatch(tr.text["README.md"], -1)
	if len(rows) == 0 {
		t.Fatal("README.md has no table of metrics")
	}
	for _, m := range rows {
		if !slices.ContainsFunc(tr.files, func(f *goFile) bool {
			return under(f.path, "test/bench") && strings.Contains(tr.text[f.path], `"`+m[1]+`"`)
		}) {
			t.Errorf("README.md: make bench does not print %s", m[1])
		}
	}
}
