package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// terminalOf returns the file descriptor of a stream that is a terminal.
func terminalOf(stream any) (int, bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	fd := int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// isColourful reports whether a stream takes colours: a terminal, and https://no-color.org is not asked for.
func isColourful(w io.Writer) bool {
	_, is := terminalOf(w)
	return is && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// progress shows on a terminal what a command waits for; elsewhere it is silent.
type progress struct {
	out   io.Writer
	on    bool
	shown bool
	begin time.Time
}

func (c *cli) progress() *progress {
	_, is := terminalOf(c.Err)
	return &progress{out: c.Err, on: is, begin: time.Now()}
}

// show replaces the line.
func (p *progress) show(format string, args ...any) {
	if !p.on {
		return
	}
	p.shown = true
	fmt.Fprintf(p.out, "\r\x1b[K%s (%s)", fmt.Sprintf(format, args...), time.Since(p.begin).Round(time.Second))
}

// clear takes the line away.
func (p *progress) clear() {
	if p.shown {
		p.shown = false
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
