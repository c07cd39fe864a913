package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// markerText is the content of the file that makes a folder a state directory of ours. Only such a folder is
// ever purged.
const markerText = "This folder belongs to trireme up. `trireme down --purge` deletes it.\n"

const (
	rootStateDir = "/var/lib/trireme"
	// maxSocket is what the smallest of our platforms' socket addresses holds.
	maxSocket = 103
	// longestPlugin is as long as the name of any socket that our device plugins make.
	longestPlugin = "trireme-nvidia.com-gpu.sock"
)

// layout names what lies where in a state directory.
type layout struct{ dir string }

func (l layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.dir}, elem...)...)
}
func (l layout) socket(service string) string {
	return l.path("run", service+".sock")
}

// otlpSocket takes spans from the services.
func (l layout) otlpSocket() string { return l.socket("otlp") }

func (l layout) log(service string) string     { return l.path("log", service+".log") }
func (l layout) pidFile(service string) string { return l.path("run", service+".pid") }
func (l layout) lock() string                  { return l.path("lock") }
func (l layout) pki() string                   { return l.path("pki") }
func (l layout) agent() string                 { return l.path("nodeagent.json") }
func (l layout) marker() string                { return l.path(".trireme") }
func (l layout) status() string                { return l.path("run", "up.json") }

// pluginDir is where the device plugins of a simulated node register.
func (l layout) pluginDir(node string) string { return l.path("nodes", node, "device-plugins") }

// defaultStateDir is the state directory where none is given.
func defaultStateDir() (string, error) {
	if os.Geteuid() == 0 {
		return rootStateDir, nil
	}
	if d := os.Getenv("XDG_STATE_HOME"); d != "" {
		return filepath.Join(d, "trireme"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the state directory: %w (set --state-dir)", err)
	}
	return filepath.Join(home, ".local", "state", "trireme"), nil
}

func newLayout(dir string) (layout, error) {
	if dir == "" {
		d, err := defaultStateDir()
		if err != nil {
			return layout{}, err
		}
		dir = d
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, err
	}
	if strings.ContainsAny(dir, "\n,") {
		return layout{}, fmt.Errorf("--state-dir %q: newlines and commas are not possible in it", dir)
	}
	return layout{dir: dir}, nil
}

// create makes the folder a state directory of ours, or makes sure that it is one.
func (l layout) create() error {
	err := l.check()
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(l.dir, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(l.marker(), []byte(markerText), 0o600); err != nil {
			return err
		}
	default:
		return err
	}
	for _, d := range []string{"run", "log", "pki", "nodes"} {
		if err := os.MkdirAll(l.path(d), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// fits makes sure that every socket of the nodes has room in a socket address.
func (l layout) fits(nodes []string) error {
	longest := l.socket("controller")
	for _, n := range nodes {
		if s := filepath.Join(l.pluginDir(n), longestPlugin); len(s) > len(longest) {
			longest = s
		}
	}
	if n := len(longest) - maxSocket; n > 0 {
		return fmt.Errorf("state directory %s is %d bytes too long for the sockets in it: choose a shorter --state-dir", l.dir, n)
	}
	return nil
}

// check reports whether the folder is a state directory of ours. An absent or empty folder gives
// fs.ErrNotExist.
func (l layout) check() error {
	if _, err := os.Stat(l.marker()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("%s is empty: %w", l.dir, fs.ErrNotExist)
	}
	return fmt.Errorf("%s has files in it but is no state directory of trireme (%s is missing): choose another --state-dir",
		l.dir, filepath.Base(l.marker()))
}
