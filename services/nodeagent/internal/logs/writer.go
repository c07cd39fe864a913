package logs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"
)

// Rotation bounds what one container's log takes on disk. Zero fields take the defaults.
type Rotation struct {
	// MaxBytes of one file before it is set aside: 10 MiB.
	MaxBytes int64
	// MaxFiles kept, the current one included: 5.
	MaxFiles int
}

// Writer appends to one log file. Its methods may be called concurrently.
type Writer struct {
	path     string
	rotation Rotation

	mu   sync.Mutex
	file *os.File
	size int64
	buf  []byte
}

// Create opens a log file for appending, and creates it if need be. Its folder exists.
func Create(path string, rotation Rotation) (*Writer, error) {
	if rotation.MaxBytes == 0 {
		rotation.MaxBytes = 10 << 20
	}
	if rotation.MaxFiles == 0 {
		rotation.MaxFiles = 5
	}
	w := &Writer{path: path, rotation: rotation}
	if err := w.open(); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *Writer) open() error {
	file, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("open log: %w", err)
	}
	w.file, w.size = file, info.Size()
	return nil
}

// WriteLine appends one line of output, or with partial a part of one. The content holds no newline.
func (w *Writer) WriteLine(stream Stream, partial bool, content []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return fmt.Errorf("write log %s: %w", w.path, os.ErrClosed)
	}
	w.buf = appendEntry(w.buf[:0], time.Now(), stream, partial, content)
	if w.size > 0 && w.size+int64(len(w.buf)) > w.rotation.MaxBytes {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	// One write call per line: a reader that follows never sees half a line for long, and a killed agent leaves none.
	n, err := w.file.Write(w.buf)
	w.size += int64(n)
	if err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	return nil
}

// Copy appends everything read from r as lines of a stream, until r ends. The end of r is no error; a last line
// without a newline is written as it is, or as a part where r was closed, since the rest may come later. Where the file cannot be written, Copy goes on reading, so that a full disk
// does not stop the container, and returns the first error at the end.
func (w *Writer) Copy(stream Stream, r io.Reader) error {
	in := bufio.NewReaderSize(r, maxPart)
	var failed error
	for {
		line, err := in.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if n := len(line); n > 0 {
			if line[n-1] == '\n' {
				line = line[:n-1]
			}
			if werr := w.WriteLine(stream, full || errors.Is(err, os.ErrClosed), line); werr != nil && failed == nil {
				failed = werr
			}
		}
		if err == nil || full {
			continue
		}
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
			err = nil
		}
		return errors.Join(failed, err)
	}
}

// Close closes the file. Later writes fail.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

// rotate sets the current file aside under its name and a time stamp, and removes the oldest beyond the limit.
func (w *Writer) rotate() error {
	aside := w.path + "." + time.Now().UTC().Format("20060102-150405.000000000")
	if err := os.Rename(w.path, aside); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	_ = w.file.Close()
	w.file = nil
	if err := w.open(); err != nil {
		return err
	}
	old, err := rotated(w.path)
	if err != nil {
		return err
	}
	for len(old) > w.rotation.MaxFiles-1 {
		if err := os.Remove(old[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("rotate log: %w", err)
		}
		old = old[1:]
	}
	return nil
}

// rotated lists the files set aside for a log, oldest first.
func rotated(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("list rotated logs: %w", err)
	}
	prefix := filepath.Base(path) + "."
	var old []string
	for _, e := range entries {
		if name := e.Name(); len(name) > len(prefix) && name[:len(prefix)] == prefix {
			old = append(old, filepath.Join(filepath.Dir(path), name))
		}
	}
	sort.Strings(old)
	return old, nil
}
