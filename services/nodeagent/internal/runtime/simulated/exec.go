package simulated

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// Exec knows echo, env, hostname, cat (of its standard input), and what a container's program may do.
func (r *Runtime) Exec(ctx context.Context, id string, spec runtime.ExecSpec) (int, error) {
	h := r.host
	h.mu.Lock()
	p, c, err := h.container(id)
	if err == nil && c.State != runtime.StateRunning {
		err = fmt.Errorf("container %s is not running", id)
	}
	if err != nil {
		h.mu.Unlock()
		return 0, fmt.Errorf("exec: %w", err)
	}
	hostname, env := p.Hostname, append([]string{"HOSTNAME=" + p.Hostname}, c.Env...)
	h.mu.Unlock()

	if len(spec.Command) == 0 {
		return 0, fmt.Errorf("exec in container %s: no command", id)
	}
	stdout, stderr := spec.Stdout, spec.Stderr
	if stdout == nil {
		stdout = io.Discard
	}
	if spec.TTY {
		stderr = stdout
	} else if stderr == nil {
		stderr = io.Discard
	}
	switch name := spec.Command[0]; name {
	case "env":
		_, err = fmt.Fprintln(stdout, strings.Join(env, "\n"))
	case "hostname":
		_, err = fmt.Fprintln(stdout, hostname)
	case "cat":
		if spec.Stdin != nil {
			_, err = io.Copy(stdout, spec.Stdin)
		}
	default:
		program, ok := execProgram(spec.Command)
		if !ok {
			_, err = fmt.Fprintf(stderr, "%s: not simulated: this container has echo, env, hostname, cat, true, false, sleep and exit\n", name)
			return 127, err
		}
		return program.exec(ctx, c, stdout)
	}
	if err != nil {
		return 0, fmt.Errorf("exec in container %s: %w", id, err)
	}
	return 0, nil
}

func execProgram(argv []string) (program, bool) {
	if len(argv) == 3 && isShell(argv[0]) && argv[1] == "-c" {
		return parseScript(argv[2])
	}
	s, ok := parseStep(argv)
	return program{steps: []step{s}}, ok
}

func (p program) exec(ctx context.Context, c *container, stdout io.Writer) (int, error) {
	code := 0
	for _, s := range p.steps {
		code = 0
		switch s.verb {
		case stepEcho:
			text := s.text
			if s.newline {
				text += "\n"
			}
			if s.file == "" {
				if _, err := io.WriteString(stdout, text); err != nil {
					return 0, fmt.Errorf("exec in container %s: %w", c.ID, err)
				}
			}
		case stepFalse:
			code = 1
		case stepExit:
			return s.code, nil
		case stepSleep, stepForever:
			var passed <-chan time.Time
			if s.verb == stepSleep {
				passed = time.After(s.wait)
			}
			select {
			case <-passed:
			case <-c.done:
				return 137, nil
			case <-ctx.Done():
				return 0, fmt.Errorf("exec in container %s: %w", c.ID, ctx.Err())
			}
		}
	}
	return code, nil
}
