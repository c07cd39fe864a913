package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// report runs the real go test over a package with this test file and returns what testreport makes of it.
func reportOn(t *testing.T, source string) (*report, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module sample\n\ngo 1.26\n", "x_test.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	stdout, _ := cmd.Output() // it exits with 1 when the sample fails, as it should

	var out strings.Builder
	w := bufio.NewWriter(&out)
	r := newReport(w)
	for line := range strings.Lines(string(stdout)) {
		r.add([]byte(line))
	}
	r.finish()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		source         string
		passed, failed int
		want           []string
		wantNot        string
	}{
		"leaves are counted, not their parents": {
			source: `package x
import "testing"
func TestA(t *testing.T) { t.Run("a/b", func(t *testing.T) {}); t.Run("c", func(t *testing.T) {}) }
func TestB(t *testing.T) { t.Log("quiet") }
func TestC(t *testing.T) { t.Skip("needs a moon") }`,
			passed: 3,
			want:   []string{"ok  \tsample", "1 skipped:", "needs a moon", "\n3 passed, 0 failed\n"}, wantNot: "quiet",
		},
		"a failing subtest is one failure, with all output": {
			source: `package x
import "testing"
func TestA(t *testing.T) {
	t.Log("before")
	t.Run("bad", func(t *testing.T) { t.Log("one"); t.Error("two") })
	t.Run("good", func(t *testing.T) { t.Log("quiet") })
}`,
			passed: 1, failed: 1,
			want: []string{"before", "one", "two", "FAIL\tsample", "sample TestA/bad", "\n1 passed, 1 failed\n"}, wantNot: "quiet",
		},
		"a parent that fails itself": {
			source: `package x
import "testing"
func TestA(t *testing.T) { t.Run("good", func(t *testing.T) {}); t.Error("own") }`,
			passed: 1, failed: 1, want: []string{"own", "sample TestA\n"},
		},
		"a panic": {
			source: `package x
import "testing"
func TestA(t *testing.T) { t.Run("deep", func(t *testing.T) { panic("boom") }) }`,
			failed: 1, want: []string{"boom", "goroutine"},
		},
		"an exit outside of any test": {
			source: `package x
import ("os"; "testing")
func TestMain(m *testing.M) { m.Run(); os.Exit(3) }
func TestA(t *testing.T) {}`,
			passed: 1, failed: 1, want: []string{"outside of any test"},
		},
		"an exit inside a test": {
			source: `package x
import ("os"; "testing")
func TestA(t *testing.T) { os.Exit(0) }`,
			failed: 1, want: []string{"sample TestA"},
		},
		"a package that does not build": {
			source: `package x
var a int = "text"`,
			failed: 1, want: []string{"cannot use", "does not build"},
		},
		"no test": {source: "package x\n", want: []string{"no test ran"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, out := reportOn(t, c.source)
			if r.passed != c.passed || r.failed != c.failed {
				t.Errorf("counted %d passed, %d failed; want %d, %d", r.passed, r.failed, c.passed, c.failed)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("output lacks %q", want)
				}
			}
			if c.wantNot != "" && strings.Contains(out, c.wantNot) {
				t.Errorf("output shows %q", c.wantNot)
			}
			if t.Failed() {
				t.Logf("output:\n%s", out)
			}
		})
	}
}

func TestBrokenStreamFails(t *testing.T) {
	r := newReport(bufio.NewWriter(new(strings.Builder)))
	r.add([]byte(`{"Action":"run","Package":"p","Test":"TestA"}` + "\n"))
	if got := r.finish(); got != "0 passed, 1 failed" {
		t.Errorf("finish() = %q", got)
	}
}
