package volume

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const dataLink = "..data"

// writeAtomically shows files in a directory so that a reader sees all of the old ones or all of the new ones:
//
//	dir/key          -> ..data/key
//	dir/..data       -> ..2026_01_02_..., swapped by one rename
//	dir/..2026.../key   the file
//
// Where the files are what is there already, nothing is touched.
func writeAtomically(dir string, files []file) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("volume: %w", err)
	}
	if old != "" && same(filepath.Join(dir, old), files) {
		return nil
	}
	fresh, err := os.MkdirTemp(dir, "..20*")
	if err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	if err := writeFiles(fresh, files); err != nil {
		_ = os.RemoveAll(fresh)
		return err
	}
	next := filepath.Join(dir, dataLink+"_tmp")
	if err := os.Remove(next); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("volume: %w", err)
	}
	if err := os.Symlink(filepath.Base(fresh), next); err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	if err := os.Rename(next, filepath.Join(dir, dataLink)); err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	if err := linkTop(dir, files); err != nil {
		return err
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			return fmt.Errorf("volume: %w", err)
		}
	}
	return nil
}

func writeFiles(dir string, files []file) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("volume: %w", err)
		}
		if err := os.WriteFile(path, f.data, f.mode); err != nil {
			return fmt.Errorf("volume: %w", err)
		}
		// WriteFile's mode is cut by the process's mask.
		if err := os.Chmod(path, f.mode); err != nil {
			return fmt.Errorf("volume: %w", err)
		}
	}
	return nil
}

// linkTop makes a link for each first element of a path, and removes those that lead nowhere now.
func linkTop(dir string, files []file) error {
	want := map[string]bool{}
	for _, f := range files {
		top, _, _ := strings.Cut(filepath.ToSlash(f.path), "/")
		want[top] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("volume: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		if want[e.Name()] {
			delete(want, e.Name())
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("volume: %w", err)
		}
	}
	for top := range want {
		if err := os.Symlink(filepath.Join(dataLink, top), filepath.Join(dir, top)); err != nil {
			return fmt.Errorf("volume: %w", err)
		}
	}
	return nil
}

// same reports whether a directory holds exactly these files.
func same(dir string, files []file) bool {
	count := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		count++
		return nil
	})
	if err != nil || count != len(files) {
		return false
	}
	for _, f := range files {
		path := filepath.Join(dir, f.path)
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != f.mode {
			return false
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(data, f.data) {
			return false
		}
	}
	return true
}
