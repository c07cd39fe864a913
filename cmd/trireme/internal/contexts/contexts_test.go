package contexts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const others = `currentContext: prod
contexts:
  prod:
    server: 10.0.0.1:7443
    certFile: c.crt
    keyFile: c.key
    caFile: ca.crt
    namespace: train
`

func load(t *testing.T, path string) *Config {
	t.Helper()
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPutClusterKeepsWhatOthersWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	put := func(name, dir, server string) string {
		c := load(t, path)
		got := c.PutCluster(name, Context{Server: server, StateDir: dir})
		if err := c.Save(path); err != nil {
			t.Fatal(err)
		}
		return got
	}
	steps := []struct{ name, dir, server, want string }{
		{"trireme", "/a", "unix:///a/1", "trireme"},
		{"prod", "/b", "unix:///b/1", "prod-2"},
		{"trireme", "/c", "unix:///c/1", "trireme-2"},
		{"whatever", "/a", "unix:///a/2", "trireme"},
	}
	for _, s := range steps {
		if got := put(s.name, s.dir, s.server); got != s.want {
			t.Errorf("cluster of %s is %q, want %q", s.dir, got, s.want)
		}
	}
	c := load(t, path)
	if got := strings.Join(c.Names(), " "); got != "prod prod-2 trireme trireme-2" {
		t.Errorf("contexts %s", got)
	}
	if p := c.Contexts["prod"]; p.Server != "10.0.0.1:7443" || p.Namespace != "train" || p.CertFile != "c.crt" {
		t.Errorf("the context that was there: %+v", p)
	}
	current, err := c.Get("")
	if err != nil || current.Server != "unix:///a/2" {
		t.Errorf("current = %+v, %v", current, err)
	}
	if !c.RemoveCluster("/a") || c.RemoveCluster("/a") || c.CurrentContext != "" {
		t.Errorf("after RemoveCluster: %+v", c)
	}
	if _, err := c.Get(""); err == nil || !strings.Contains(err.Error(), "trireme up") {
		t.Errorf("no current context: %v", err)
	}
	if _, err := c.Get("nope"); err == nil || !strings.Contains(err.Error(), "prod, prod-2, trireme-2") {
		t.Errorf("unknown context: %v", err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if c := load(t, path); len(c.Contexts) != 0 {
		t.Errorf("no file gives %+v", c)
	}
	for content, want := range map[string]string{
		"":                              "",
		"contexts: [1]":                 "config.yaml",
		"contexts: {a: {servr: x}}":     "servr",
		"contexts: {a: {server: x}}\n}": "config.yaml",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}

// TestRelativePaths begin in the file's folder, from wherever the file is named; what is saved keeps them as they were.
func TestRelativePaths(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, name := range []string{path, "state/config.yaml"} {
		c := load(t, name)
		got, err := c.Get("")
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, "state", "c.key"); got.KeyFile != want {
			t.Errorf("%s: key is %s, want %s", name, got.KeyFile, want)
		}
		if err := c.Save(name); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), "keyFile: c.key\n") {
		t.Errorf("saved as %s, %v", data, err)
	}
}
