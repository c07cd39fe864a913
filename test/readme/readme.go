// Package readme runs the commands that a README shows, so that what a reader types is what the tests have run. Every
// shell block of the document carries a mark on the line before it: which kind of cluster it is run on, or why it is not.
//
//	<!-- run: sim -->
//	<!-- not run: starts a cluster and stays -->
//
// A line whose comment says "Ctrl-C ends it" follows something without end; it is run for three seconds. What a block leaves
// in the background ends with it.
package readme

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// follow is how many seconds a command without end is run.
const follow = 3

const prologue = `set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
`

// Block is one shell block of a document.
type Block struct {
	// Line of the block's first command in the document.
	Line int
	// Cluster that the block is run on; empty where it is not run.
	Cluster string
	// Script as written.
	Script string
}

var mark = regexp.MustCompile(`^<!-- (?:run: ([a-z]+)|not run: \S.*) -->$`)

// Blocks finds the shell blocks of a document. One without a mark is an error.
func Blocks(name string, text []byte) ([]Block, error) {
	var (
		out  []Block
		in   *Block
		last string
	)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case in != nil && line == "```":
			out, in = append(out, *in), nil
		case in != nil:
			in.Script += line + "\n"
		case line == "```sh":
			m := mark.FindStringSubmatch(last)
			if m == nil {
				return nil, fmt.Errorf("%s:%d: the shell block has no mark before it: <!-- run: CLUSTER --> or <!-- not run: REASON -->", name, n)
			}
			in = &Block{Line: n + 1, Cluster: m[1]}
		}
		last = line
	}
	if in != nil {
		return nil, fmt.Errorf("%s:%d: the block does not end", name, in.Line)
	}
	return out, lines.Err()
}

// Run executes the block in dir as one script that stops at the first command that fails, and returns what it printed.
// replace turns names of the reader's machine into those of the test's, pairs as for strings.NewReplacer.
func (b Block) Run(ctx context.Context, dir string, env, replace []string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-c", prologue+strings.NewReplacer(replace...).Replace(script(b.Script)))
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("block at line %d: %w", b.Line, err)
	}
	return string(out), nil
}

// script bounds the commands that would not end.
func script(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if command, comment, ok := strings.Cut(line, "  #"); ok && strings.Contains(comment, "Ctrl-C ends it") {
			lines[i] = fmt.Sprintf("timeout --signal=INT %d %s || [ $? -eq 124 ]", follow, strings.TrimSpace(command))
		}
	}
	return strings.Join(lines, "\n")
}
