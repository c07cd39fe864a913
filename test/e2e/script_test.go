//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// pollEvery is how often `eventually` repeats its command.
const pollEvery = 100 * time.Millisecond

// sequential makes testscript run the scripts of a scenario one after the other, since they share a cluster.
type sequential struct{ *testing.T }

func (s sequential) Parallel() {}

func (s sequential) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(sequential{t}) })
}

func (s sequential) Verbose() bool { return testing.Verbose() }

// runScenario runs the scripts of a folder against a cluster and stops at the first that fails, since those that
// follow build on it.
func runScenario(t *testing.T, folder string, c *cluster) {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in %s (%v)", folder, err)
	}
	sort.Strings(scripts)
	for _, script := range scripts {
		testscript.RunT(sequential{t}, testscript.Params{
			Files: []string{script},
			Setup: func(env *testscript.Env) error {
				env.Vars = append(env.Vars, c.environment()...)
				return nil
			},
			Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
				"eventually":  eventually,
				"kill9":       c.kill9,
				"restarted":   c.restarted,
				"leftnothing": c.leftNothing,
			},
		})
		if t.Failed() {
			t.Logf("logs of the services:\n%s", c.tails())
			return
		}
	}
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: eventually DURATION REGEXP COMMAND...")
	}
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	var out string
	for deadline := time.Now().Add(limit); ; {
		var failed error
		out, failed = run(ts, args[2:])
		if failed == nil && want.MatchString(out) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s: after %s still no match for %s (%v):\n%s", strings.Join(args[2:], " "), limit, args[1], failed, out)
		}
		time.Sleep(pollEvery)
	}
}

// run runs a command in the script's environment, bounded, and returns both outputs together.
func run(ts *testscript.TestScript, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	program := args[0]
	if program == "trireme" {
		program = filepath.Join(ts.Getenv("BIN"), program)
	}
	cmd := exec.CommandContext(ctx, program, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "TRIREME_CONFIG="+ts.Getenv("TRIREME_CONFIG"), "PATH="+ts.Getenv("PATH"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// killed remembers the pids of killed services until restarted has seen their successors.
func (c *cluster) kill9(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: kill9 SERVICE")
	}
	pid, err := c.pid(args[0])
	ts.Check(err)
	c.killed[args[0]] = pid
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
}

func (c *cluster) restarted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: restarted SERVICE")
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(pollEvery) {
		pid, err := c.pid(args[0])
		if err == nil && pid != c.killed[args[0]] && syscall.Kill(pid, 0) == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s was not restarted within 20 s (pid %d, %v)", args[0], pid, err)
		}
	}
}

// pid of a service, from the file that `trireme up` keeps.
func (c *cluster) pid(service string) (int, error) {
	text, err := os.ReadFile(filepath.Join(c.state, "run", service+".pid"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0, fmt.Errorf("pid file of %s is empty", service)
	}
	return strconv.Atoi(fields[0])
}
