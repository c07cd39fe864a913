package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Glob takes every device node whose path matches one of its patterns as a device. Its IDs are the paths below /dev
// with slashes as dashes: /dev/dri/renderD128 is dri-renderD128.
type Glob struct {
	root     string
	patterns []string
}

// NewGlob returns an inventory of the paths that match patterns, in the syntax of path/filepath.Match. root is "/" but
// in tests.
func NewGlob(root string, patterns []string) (*Glob, error) {
	if len(patterns) == 0 {
		return nil, fmt.Errorf("no patterns of paths")
	}
	for _, p := range patterns {
		if _, err := filepath.Match(p, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", p, err)
		}
		if !filepath.IsAbs(p) {
			return nil, fmt.Errorf("pattern %q: want an absolute path", p)
		}
	}
	return &Glob{root: root, patterns: patterns}, nil
}

// Devices implements Inventory.
func (g *Glob) Devices() ([]Device, error) {
	var devices []Device
	seen := map[string]bool{}
	for _, pattern := range g.patterns {
		found, err := filepath.Glob(under(g.root, pattern))
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		for _, full := range found {
			path := "/" + strings.TrimPrefix(strings.TrimPrefix(full, g.root), "/")
			if seen[path] {
				continue
			}
			seen[path] = true
			d := Device{ID: globID(path), Nodes: []Node{{Host: path, Container: path}}}
			if info, err := os.Stat(full); err != nil {
				d.Unhealthy = err.Error()
			} else if info.IsDir() {
				continue
			}
			devices = append(devices, d)
		}
	}
	slices.SortFunc(devices, Compare)
	return devices, nil
}

// Shared implements Inventory; there is nothing to share.
func (g *Glob) Shared() []Node { return nil }

func globID(path string) string {
	return strings.ReplaceAll(strings.Trim(strings.TrimPrefix(path, "/dev"), "/"), "/", "-")
}
