package repo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const program = "/usr/local/bin/trireme "

// unitCommands are the uses of trireme in units of systemd.
func unitCommands(t *testing.T, units []string) []command {
	t.Helper()
	var out []command
	for _, file := range units {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			// Flags also stand in what a unit sets for its own command line.
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch {
			case key == "ExecStart" && strings.HasPrefix(value, program):
				out = append(out, command{fmt.Sprintf("%s:%d", file, n), strings.Fields(strings.TrimPrefix(value, program))})
			case key == "Environment" && strings.Contains(value, "_ARGS="):
				service := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "trireme-"), ".service")
				_, flags, _ := strings.Cut(strings.Trim(value, `"`), "=")
				out = append(out, command{fmt.Sprintf("%s:%d", file, n), append([]string{service}, strings.Fields(flags)...)})
			}
		}
	}
	return out
}

// TestUnits has systemd itself read the units, and bin/trireme their command lines.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob(filepath.Join(root, "deploy/systemd/*.service"))
	if err != nil || len(units) != 6 {
		t.Fatalf("units %v, %v: want the five services and the node that joins", units, err)
	}
	commands := unitCommands(t, units)
	for _, service := range []string{"apiserver", "scheduler", "controller", "nodeagent", "deviced", "node"} {
		if !slices.ContainsFunc(commands, func(c command) bool { return c.words[0] == service }) {
			t.Errorf("no unit starts trireme %s", service)
		}
	}
	t.Run("command lines", func(t *testing.T) {
		for _, finding := range wrongCommands(commands, helpOf(t)) {
			t.Error(finding)
		}
	})
	t.Run("systemd-analyze verify", func(t *testing.T) {
		analyze, err := exec.LookPath("systemd-analyze")
		if err != nil {
			t.Skipf("no systemd on this machine: %v", err)
		}
		// It wants every program to be there: another one stands in for ours.
		stand, err := exec.LookPath("true")
		if err != nil {
			t.Skip(err)
		}
		dir := t.TempDir()
		args := []string{"verify", "--man=no"}
		for _, u := range units {
			text, err := os.ReadFile(u)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, filepath.Base(u))
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), program, stand+" ")), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, file)
		}
		if out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
		// A unit with a mistake is found, or the check above proves nothing.
		bad := filepath.Join(dir, "trireme-bad.service")
		if err := os.WriteFile(bad, []byte("[Service]\nExecStart="+stand+"\nProtectSystems=strict\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", bad).CombinedOutput(); err == nil && len(out) == 0 {
			t.Error("systemd-analyze verify takes a unit with a misspelt setting")
		}
	})
}
