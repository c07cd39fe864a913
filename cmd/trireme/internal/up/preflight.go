package up

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// missingError lists all that this machine lacks for real containers.
type missingError struct{ missing []string }

func (e *missingError) Error() string {
	return "real containers cannot run here:\n  - " + strings.Join(e.missing, "\n  - ") +
		"\nSimulated nodes need none of this: trireme up --simulate 4"
}

// runtimePrograms are what the node agent needs of containerd; the shim is found by containerd itself.
var runtimePrograms = []string{"containerd", "containerd-shim-runc-v2", "runc"}

// findRuntime returns the folder with containerd, its shim and runc: the one that is given, build/runtime/bin
// beside the folder of this executable, or the one on PATH that has containerd.
func findRuntime(given, exe, searchPath string) (dir string, missing []string) {
	var tried []string
	candidates := []string{given}
	if given == "" {
		candidates = []string{filepath.Join(filepath.Dir(exe), "..", "build", "runtime", "bin")}
		candidates = append(candidates, filepath.SplitList(searchPath)...)
	}
	for _, c := range candidates {
		lacks := lacking(c)
		if len(lacks) == 0 {
			abs, err := filepath.Abs(c)
			if err != nil {
				return "", []string{err.Error()}
			}
			return abs, nil
		}
		if len(lacks) < len(runtimePrograms) || given != "" {
			tried = append(tried, fmt.Sprintf("%s (lacks %s)", c, strings.Join(lacks, ", ")))
		}
	}
	where := filepath.Clean(candidates[0]) + " or on PATH"
	if given != "" {
		where = given + " (--runtime-bin)"
	}
	text := fmt.Sprintf("no containerd with its shim and runc in %s: `make runtimes` builds them, or --containerd-socket names a containerd that runs", where)
	if len(tried) > 0 && given == "" {
		text += "; incomplete: " + strings.Join(tried, ", ")
	}
	return "", []string{text}
}

func lacking(dir string) []string {
	var lacks []string
	for _, p := range runtimePrograms {
		if _, err := exec.LookPath(filepath.Join(dir, p)); err != nil {
			lacks = append(lacks, p)
		}
	}
	return lacks
}

// isSocket reports whether path is a socket file.
func isSocket(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&os.ModeSocket != 0
}
