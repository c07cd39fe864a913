package up

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress prints what happens, one line each, with the time since the start. It uses no colours and never
// goes back, so that a file or a pipe reads like the terminal. Safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
}

// step prints one line with its time.
func (p *progress) step(format string, args ...any) {
	p.print("%6.2fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// print prints as it is. A terminal that is gone is no reason to stop a cluster.
func (p *progress) print(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.w, format, args...)
}

// table aligns rows under a header; its last column is as wide as it likes.
func table(rows [][]string) string {
	width := map[int]int{}
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			if i == len(row)-1 {
				b.WriteString(cell)
				break
			}
			fmt.Fprintf(&b, "%-*s  ", width[i], cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
