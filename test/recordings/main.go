// Recordings makes the pictures of the README: it runs the commands in a terminal of its own, on a simulated cluster,
// and writes what they print as SVG, colours included. It must run in the repository's root, on Linux, and needs what
// `make build` makes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"trireme.dev/kit/daemon"
)

const (
	columns = 124
	lines   = 60
	example = "examples/gpu-gang.yaml"
	// shownState is where the state is by default.
	shownState = "~/.local/state/trireme"
)

func main() {
	out := flag.String("out", "docs/img", "`folder` of the pictures")
	binary := flag.String("binary", "bin/trireme", "the `program` to record")
	flag.Parse()
	daemon.Main(func(ctx context.Context) error { return record(ctx, *binary, *out) })
}

// record brings a cluster up, looks at a trace, and takes it down.
func record(ctx context.Context, binary, out string) (err error) {
	dir, err := os.MkdirTemp("", "t-")
	if err != nil {
		return err
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	// As long as what stands for it in the picture, so that columns stay straight.
	state := filepath.Join(dir, strings.Repeat("s", max(1, len(shownState)-len(dir)-1)))
	hide := strings.NewReplacer(binary, "trireme", state, shownState, dir, "~")
	run := func(ctx context.Context, args ...string) (string, error) {
		text, err := inTerminal(ctx, append([]string{binary}, args...), []string{"TRIREME_CONFIG=" + filepath.Join(dir, "config.yaml")})
		if err != nil {
			return "", fmt.Errorf("trireme %s: %w\n%s", strings.Join(args, " "), err, text)
		}
		return hide.Replace(text), nil
	}
	defer func() {
		_, down := run(context.WithoutCancel(ctx), "down", "--purge", "--state-dir", state)
		err = errors.Join(err, down, os.RemoveAll(dir))
	}()
	up, err := run(ctx, "up", "--detach", "--simulate", "4", "--apply", example, "--state-dir", state, "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := save(out, "up", "trireme up --simulate 4 --apply "+example, up); err != nil {
		return err
	}
	names, err := run(ctx, "get", "pods", "-o", "name")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(names), "\n")
	first = strings.TrimSpace(first)
	trace, err := run(ctx, "trace", first)
	if err != nil {
		return err
	}
	return save(out, "trace", "trireme trace "+first, trace)
}

func save(folder, name, command, text string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+".svg"), picture(command, parse(text), columns), 0o644)
}
