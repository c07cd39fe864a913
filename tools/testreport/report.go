package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`; `go doc test2json` describes it.
type event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64
	Output      string
	ImportPath  string // on build-output and build-fail, instead of Package
	FailedBuild string
}

// A report counts leaves: a test with subtests stands for nothing of its own, unless it fails while they pass.
type report struct {
	out      *bufio.Writer
	packages map[string]*pkg
	passed   int
	failed   int
	failures []string
	skips    []string
	slow     []timing
	elapsed  time.Duration
}

// pkg holds what has been seen of a package that has not ended.
type pkg struct {
	output strings.Builder // of no test
	tests  map[string]*test
	order  []string
}

type test struct {
	output       strings.Builder
	ended        bool
	hasChildren  bool
	childFailed  bool
	failedItself bool
}

type timing struct {
	name    string
	elapsed time.Duration
}

const (
	slowest       = 8
	slowEnough    = time.Second
	skipReasonLen = 200
)

func newReport(out *bufio.Writer) *report {
	return &report{out: out, packages: map[string]*pkg{}}
}

// add takes one line and says whether anything was printed.
func (r *report) add(line []byte) bool {
	var e event
	if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &e) != nil {
		// go's own messages, such as a pattern that matches nothing.
		_, _ = r.out.Write(line)
		return true
	}
	switch {
	case e.Action == "build-output":
		_, _ = r.out.WriteString(e.Output)
		return true
	case e.Package == "":
		return false
	case e.Test == "":
		return r.packageEvent(e)
	default:
		r.testEvent(e)
		return false
	}
}

func (r *report) pkg(name string) *pkg {
	p := r.packages[name]
	if p == nil {
		p = &pkg{tests: map[string]*test{}}
		r.packages[name] = p
	}
	return p
}

func (p *pkg) test(name string) *test {
	t := p.tests[name]
	if t == nil {
		t = &test{}
		p.tests[name] = t
		p.order = append(p.order, name)
		if parent := p.parent(name); parent != nil {
			parent.hasChildren = true
		}
	}
	return t
}

// parent returns the test that ran name as its subtest, nil for a test at the top. A subtest's own name may hold
// slashes, so the longest prefix that is a known test is the parent.
func (p *pkg) parent(name string) *test {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if t := p.tests[name[:i]]; t != nil {
			return t
		}
	}
	return nil
}

func (r *report) testEvent(e event) {
	p := r.pkg(e.Package)
	t := p.test(e.Test)
	elapsed := time.Duration(e.Elapsed * float64(time.Second))
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass":
		t.ended = true
		if !t.hasChildren {
			r.passed++
			r.timed(e.Package+" "+e.Test, elapsed)
		}
		t.output.Reset()
	case "skip":
		t.ended = true
		if !t.hasChildren {
			r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, skipReason(t.output.String())))
		}
		t.output.Reset()
	case "fail":
		r.timed(e.Package+" "+e.Test, elapsed)
		r.fail(p, e.Package, e.Test, "")
	}
}

// fail counts a test that failed, once on the way up from the subtest that did.
func (r *report) fail(p *pkg, pkgName, name, why string) {
	t := p.test(name)
	t.ended, t.failedItself = true, true
	if parent := p.parent(name); parent != nil {
		parent.childFailed = true
	}
	if !t.childFailed {
		r.failed++
		r.failures = append(r.failures, pkgName+" "+name+why)
	}
}

func (r *report) packageEvent(e event) bool {
	p := r.pkg(e.Package)
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
		return false
	case "pass", "skip":
		for line := range strings.Lines(p.output.String()) {
			if strings.HasPrefix(line, "ok ") {
				_, _ = r.out.WriteString(line)
			}
		}
	case "fail":
		r.failPackage(p, e)
	default:
		return false
	}
	r.elapsed += time.Duration(e.Elapsed * float64(time.Second))
	delete(r.packages, e.Package)
	return true
}

func (r *report) failPackage(p *pkg, e event) {
	before := r.failed
	for _, name := range slices.Backward(p.order) { // subtests before their parents
		if t := p.tests[name]; !t.ended {
			r.fail(p, e.Package, name, " (did not end)")
		}
	}
	failedHere := r.failed > before
	for _, name := range p.order {
		t := p.tests[name]
		failedHere = failedHere || t.failedItself
		if t.failedItself {
			_, _ = r.out.WriteString(t.output.String())
		}
	}
	_, _ = r.out.WriteString(p.output.String())
	if !failedHere {
		why := " (outside of any test)"
		if e.FailedBuild != "" {
			why = " (does not build)"
		}
		r.failed++
		r.failures = append(r.failures, e.Package+why)
	}
}

func (r *report) timed(name string, elapsed time.Duration) {
	if elapsed >= slowEnough {
		r.slow = append(r.slow, timing{name, elapsed})
	}
}

// finish prints what is known only at the end, and returns its last line.
func (r *report) finish() string {
	for name, p := range r.packages {
		if len(p.tests) > 0 || p.output.Len() > 0 { // the stream broke off
			r.failPackage(p, event{Package: name})
		}
	}
	if len(r.slow) > 0 {
		slices.SortFunc(r.slow, func(a, b timing) int { return int(b.elapsed - a.elapsed) })
		fmt.Fprintln(r.out, "\nslowest tests:")
		for _, t := range r.slow[:min(len(r.slow), slowest)] {
			fmt.Fprintf(r.out, "  %6.1f s  %s\n", t.elapsed.Seconds(), t.name)
		}
	}
	r.list("skipped", r.skips)
	r.list("failed", r.failures)
	fmt.Fprintf(r.out, "\npackages took %.0f s together\n", r.elapsed.Seconds())
	if r.passed+r.failed == 0 {
		fmt.Fprintln(r.out, "no test ran")
	}
	closing := fmt.Sprintf("%d passed, %d failed", r.passed, r.failed)
	fmt.Fprintln(r.out, closing)
	return closing
}

func (r *report) list(title string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(r.out, "\n%d %s:\n", len(names), title)
	for _, n := range names {
		fmt.Fprintln(r.out, "  "+n)
	}
}

// skipReason finds what t.Skip was given: the last line that is not go test's own.
func skipReason(output string) string {
	reason := "no reason given"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			reason = line
		}
	}
	return reason[:min(len(reason), skipReasonLen)]
}
