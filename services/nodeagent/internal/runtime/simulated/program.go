package simulated

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// program is what a simulated container does: its steps one after the other, then it exits with the last one's code.
type program struct {
	steps []step
	// onTerm is what the stop signal does.
	onTerm onTerm
	// trapCode is the exit code of a trap: termExits.
	trapCode int
	// missing says that there is no such executable.
	missing string
}

type onTerm int

const (
	termKills onTerm = iota
	termExits
	termIgnored
)

type verb int

const (
	stepEcho verb = iota
	stepSleep
	stepExit
	stepTrue
	stepFalse
	stepForever
)

type step struct {
	verb verb
	text string
	// file receives the text of an echo instead of the log; newline ends it.
	file    string
	newline bool
	wait    time.Duration
	code    int
}

// parseProgram understands the commands listed in the package comment. Whatever it doesn't understand runs until it
// is stopped, so that any image can be simulated.
func parseProgram(argv []string) program {
	if len(argv) == 0 {
		return program{steps: []step{{verb: stepForever}}}
	}
	if strings.HasPrefix(argv[0], "/absent/") {
		return program{missing: argv[0]}
	}
	if len(argv) == 3 && isShell(argv[0]) && argv[1] == "-c" {
		if p, ok := parseScript(argv[2]); ok {
			return p
		}
		return program{steps: []step{{verb: stepForever}}}
	}
	if s, ok := parseStep(argv); ok {
		return program{steps: []step{s}}
	}
	return program{steps: []step{{verb: stepForever}}}
}

func isShell(name string) bool {
	switch name {
	case "sh", "/bin/sh", "bash", "/bin/bash":
		return true
	}
	return false
}

func parseStep(argv []string) (step, bool) {
	switch {
	case argv[0] == "true" && len(argv) == 1:
		return step{verb: stepTrue}, true
	case argv[0] == "false" && len(argv) == 1:
		return step{verb: stepFalse}, true
	case argv[0] == "exit" && len(argv) == 2:
		code, err := strconv.ParseUint(argv[1], 10, 8)
		return step{verb: stepExit, code: int(code)}, err == nil
	case argv[0] == "sleep" && len(argv) == 2:
		if argv[1] == "infinity" {
			return step{verb: stepForever}, true
		}
		seconds, err := strconv.ParseFloat(argv[1], 64)
		return step{verb: stepSleep, wait: time.Duration(seconds * float64(time.Second))}, err == nil && seconds >= 0
	case argv[0] == "echo":
		s := step{verb: stepEcho, newline: true}
		words := argv[1:]
		if len(words) > 0 && words[0] == "-n" {
			s.newline, words = false, words[1:]
		}
		s.text = strings.Join(words, " ")
		return s, true
	}
	return step{}, false
}

// waitLoop is how a shell script waits while it can still act on signals.
var waitLoop = regexp.MustCompile(`while (true|:); do sleep [0-9.]+; done\s*$`)

// parseScript understands statements separated by semicolons or newlines. One that it doesn't understand makes the
// whole script unknown: half a simulation would be a lie.
func parseScript(script string) (program, bool) {
	var p program
	script = waitLoop.ReplaceAllString(script, "sleep infinity")
	for _, statement := range strings.FieldsFunc(script, func(r rune) bool { return r == ';' || r == '\n' }) {
		words, ok := splitWords(statement)
		if !ok {
			return p, false
		}
		if len(words) == 0 {
			continue
		}
		if len(words) == 3 && words[0] == "trap" && (words[2] == "TERM" || words[2] == "SIGTERM") {
			if !p.trap(words[1]) {
				return p, false
			}
			continue
		}
		file := ""
		if n := len(words); n > 2 && words[n-2] == ">" {
			file, words = words[n-1], words[:n-2]
		}
		s, ok := parseStep(words)
		if !ok || (file != "" && s.verb != stepEcho) {
			return p, false
		}
		s.file = file
		p.steps = append(p.steps, s)
	}
	return p, len(p.steps) > 0
}

func (p *program) trap(command string) bool {
	if command == "" {
		p.onTerm = termIgnored
		return true
	}
	code, ok := strings.CutPrefix(command, "exit ")
	if !ok {
		return false
	}
	n, err := strconv.ParseUint(code, 10, 8)
	p.onTerm, p.trapCode = termExits, int(n)
	return err == nil
}

// splitWords splits a statement at blanks, with single and double quotes. Anything that a shell would expand or
// connect makes it not understood.
func splitWords(s string) ([]string, bool) {
	var words []string
	var word strings.Builder
	inWord := false
	var quote rune
	for _, r := range s {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
				continue
			}
			if quote == '"' && strings.ContainsRune("$`\\", r) {
				return nil, false
			}
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case strings.ContainsRune("$`\\|&<(){}*?", r):
			return nil, false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, quote == 0
}
