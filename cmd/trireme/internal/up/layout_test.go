package up

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStateDirectoryMustBeOurs(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "photos")
	if err := os.MkdirAll(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(foreign, "a.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{layout{foreign}.create(), purgeState(layout{foreign}, &progress{w: os.Stderr})} {
		if err == nil || !strings.Contains(err.Error(), "is no state directory of trireme") {
			t.Errorf("a folder with other files: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(foreign, "a.jpg")); err != nil {
		t.Errorf("the file in it: %v", err)
	}
	long := layout{filepath.Join(dir, strings.Repeat("x", 100))}
	if err := long.fits(nil); err == nil || !strings.Contains(err.Error(), "shorter --state-dir") {
		t.Errorf("a long path: %v", err)
	}
	empty := layout{filepath.Join(dir, "e")}
	if err := os.Mkdir(empty.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := empty.check(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder: %v, want ErrNotExist", err)
	}
	for range 2 {
		if err := empty.create(); err != nil {
			t.Fatal(err)
		}
	}
	if err := empty.check(); err != nil {
		t.Errorf("after create: %v", err)
	}
	st, err := os.Stat(filepath.Join(dir, "e", "run"))
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("run: %v, %v, want mode 0700", st, err)
	}
}

func TestPurgeDeletesTheDirectoryAndItsContext(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	t.Setenv("TRIREME_CONFIG", config)
	l := newTestLayout(t)
	certs, err := issue(l, "a", []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := writeContext(l, certs["admin"], ""); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(config); err != nil || !strings.Contains(string(data), l.socket("apiserver")) {
		t.Fatalf("configuration %q, %v", data, err)
	}
	var out strings.Builder
	if err := down(t.Context(), l.dir, true, &out); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("state directory after purge: %v", err)
	}
	if data, err := os.ReadFile(config); err != nil || strings.Contains(string(data), l.dir) {
		t.Errorf("configuration after purge %q, %v", data, err)
	}
	out.Reset()
	if err := down(t.Context(), l.dir, true, &out); err != nil || !strings.Contains(out.String(), "no cluster in "+l.dir) {
		t.Errorf("down again: %q, %v", out.String(), err)
	}
}
