// Command testreport reads the output of `go test -json` and prints what a reader of a CI log wants: the whole
// output of what failed, go test's line for each package, what was skipped and why, what took longest, and last,
// alone on its line, "N passed, N failed". It exits with 1 when anything failed, a package that does not build
// or a binary that dies included, and when no test ran at all.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
)

func main() {
	summary := flag.String("summary", "", "also write the closing line to this `file`")
	flag.Parse()

	out := bufio.NewWriter(os.Stdout)
	r := newReport(out)
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && r.add(line) {
			_ = out.Flush() // a log that cannot be written is noticed at the end
		}
		if err != nil {
			break
		}
	}
	closing := r.finish()
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if *summary != "" {
		if err := os.WriteFile(*summary, []byte(closing+"\n"), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "testreport:", err)
			os.Exit(1)
		}
	}
	if r.failed > 0 || r.passed == 0 {
		os.Exit(1)
	}
}
