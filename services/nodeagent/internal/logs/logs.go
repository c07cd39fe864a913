// Package logs writes and reads the log files of containers in the CRI format.
//
// It owns the format of one line, rotation, and following a file that is being written. It knows nothing of pods or
// runtimes: a runtime writes with a [Writer], the node agent's server reads with [Read].
//
// A line is
//
//	2026-01-02T15:04:05.123456789Z stdout F the text
//
// F ends a line of the container's output. P is a part of a longer one, whose next part follows.
package logs

import (
	"bytes"
	"fmt"
	"time"
)

// Stream is the output that a line came from.
type Stream string

// The two streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// maxPart is the longest content of one line of the file; what is longer is cut into parts.
const maxPart = 16 << 10

// entry is one line of a log file.
type entry struct {
	time    time.Time
	stream  Stream
	partial bool
	content []byte
}

// appendEntry appends the file's form of an entry.
func appendEntry(b []byte, at time.Time, stream Stream, partial bool, content []byte) []byte {
	b = at.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000000Z07:00")
	b = append(b, ' ')
	b = append(b, stream...)
	if partial {
		b = append(b, " P "...)
	} else {
		b = append(b, " F "...)
	}
	b = append(b, content...)
	return append(b, '\n')
}

// parseEntry reads one line without its newline. The content shares the line's memory.
func parseEntry(line []byte) (entry, error) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return entry{}, fmt.Errorf("log line without a stream: %.40q", line)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return entry{}, fmt.Errorf("log line without a time: %.40q", line)
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return entry{}, fmt.Errorf("log line without a tag: %.40q", line)
	}
	tag, content, _ := bytes.Cut(rest, []byte{' '})
	// Kubernetes allows more tags after a colon; the first says whether the line is complete.
	first, _, _ := bytes.Cut(tag, []byte{':'})
	return entry{time: at, stream: Stream(stream), partial: string(first) == "P", content: content}, nil
}
