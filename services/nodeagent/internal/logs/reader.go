package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options say which part of a log is read, and how it is shown.
type Options struct {
	// Follow goes on with what is written later, through rotations, and waits for a file that does not exist yet.
	Follow bool
	// Ended is closed when the container has exited and nothing more will be written; a follower then reads to the
	// end and returns. Nil follows until the context ends.
	Ended <-chan struct{}
	// TailLines is how many lines before the end to begin at; nil means at the beginning.
	TailLines *int64
	// SinceTime leaves out what is older.
	SinceTime time.Time
	// LimitBytes ends the output after so many bytes; nil means no limit.
	LimitBytes *int64
	// Timestamps puts the time before each line.
	Timestamps bool
	// Stream picks one of the two; empty means both.
	Stream Stream
}

// errLimit ends reading at LimitBytes.
var errLimit = errors.New("limit reached")

// Read writes the container's output that is in a log file to w. Files set aside by rotation are not read, as in
// Kubernetes. Without Follow it returns at the end of the file; a file that does not exist is fs.ErrNotExist. With
// Follow it returns when the container has ended, or with the context's error.
func Read(ctx context.Context, path string, opts Options, w io.Writer) error {
	f := &follower{path: path, opts: opts, out: &output{w: w, opts: opts}}
	defer f.close()
	if opts.LimitBytes != nil {
		f.out.left = *opts.LimitBytes
	}
	var err error
	if opts.Follow {
		err = f.follow(ctx)
	} else {
		err = f.once(ctx)
	}
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// follower reads one log file after the other.
type follower struct {
	path string
	opts Options
	out  *output
	file *os.File
	in   *bufio.Reader
	// rest is a line whose end has not been written yet.
	rest []byte
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close()
	}
}

func (f *follower) open(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	f.use(file)
	return nil
}

// use makes a file the one that is read, from where it stands.
func (f *follower) use(file *os.File) {
	f.close()
	f.file, f.in, f.rest = file, bufio.NewReaderSize(file, 64<<10), nil
}

// openFirst opens the log where the options say to begin.
func (f *follower) openFirst() error {
	if err := f.open(f.path); err != nil {
		return err
	}
	if f.opts.TailLines == nil {
		return nil
	}
	offset, err := tailOffset(f.file, *f.opts.TailLines)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if _, err := f.file.Seek(offset, io.SeekStart); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return nil
}

func (f *follower) once(ctx context.Context) error {
	if err := f.openFirst(); err != nil {
		return err
	}
	return f.drain(ctx)
}

// drain shows what is in the file up to its end.
func (f *follower) drain(ctx context.Context) error {
	for {
		line, err := f.in.ReadSlice('\n')
		f.rest = append(f.rest, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read log: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		entry, err := parseEntry(bytes.TrimSuffix(f.rest, []byte{'\n'}))
		if err != nil {
			return fmt.Errorf("read log %s: %w", f.path, err)
		}
		if err := f.out.show(entry); err != nil {
			return err
		}
		f.rest = f.rest[:0]
	}
}

func (f *follower) follow(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("follow log: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	// The folder is watched, not the file: that sees its creation and its rotation too.
	if err := watcher.Add(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("follow log: %w", err)
	}
	ended := f.opts.Ended
	last := false
	for {
		if err := f.advance(ctx); err != nil {
			return err
		}
		if last {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			// What was written before the end is read once more.
			last = true
		case <-watcher.Events:
		case err := <-watcher.Errors:
			// Lost events say only that something happened, which the next look finds.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("follow log: %w", err)
			}
		}
	}
}

// advance shows all that there is, going on to the next file after a rotation.
func (f *follower) advance(ctx context.Context) error {
	if f.file == nil {
		if err := f.openFirst(); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
	}
	for {
		if err := f.drain(ctx); err != nil {
			return err
		}
		mine, err := f.file.Stat()
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		next, err := f.openAfter(mine)
		if err != nil || next == nil {
			return err
		}
		// The writer left this file before it made the next: one more look reads it to its true end.
		if err := f.drain(ctx); err != nil {
			_ = next.Close()
			return err
		}
		f.use(next)
	}
}

// openAfter opens the file that follows one, nil where that is the newest. A rotation in between gives the newest file's
// name to another one, so what was opened is held against a list made after that.
func (f *follower) openAfter(mine os.FileInfo) (*os.File, error) {
	for {
		path, err := f.after(mine)
		if err != nil || path == "" {
			return nil, err
		}
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read log: %w", err)
		}
		opened, err := file.Stat()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read log: %w", err), file.Close())
		}
		if path, err = f.after(mine); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if follows, err := os.Stat(path); err == nil && os.SameFile(opened, follows) {
			return file, nil
		}
		_ = file.Close()
	}
}

// after names the file that follows one, empty where that is the newest, or a rotation is just going on: then the
// file that it makes is an event.
func (f *follower) after(mine os.FileInfo) (string, error) {
	if current, err := os.Stat(f.path); err != nil || os.SameFile(mine, current) {
		return "", nil
	}
	files, err := rotated(f.path)
	if err != nil {
		return "", err
	}
	files = append(files, f.path)
	for i, file := range files[:len(files)-1] {
		if info, err := os.Stat(file); err == nil && os.SameFile(mine, info) {
			return files[i+1], nil
		}
	}
	return files[0], nil
}

// tailOffset finds where the last lines of a file begin, counting whole lines of output.
func tailOffset(file *os.File, lines int64) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	if lines <= 0 {
		return end, nil
	}
	const block = 64 << 10
	var tail []byte // of the file, from offset at
	at, seen := end, int64(0)
	// Lines are looked at from the last one backwards; cut is the end of the one to look at, as an offset.
	cut, begin := end, end
	for {
		i := bytes.LastIndexByte(tail[:max(0, cut-at-1)], '\n')
		if i < 0 && at > 0 {
			size := min(int64(block), at)
			more := make([]byte, size, size+int64(len(tail)))
			if _, err := file.ReadAt(more, at-size); err != nil {
				return 0, err
			}
			tail, at = append(more, tail...), at-size
			continue
		}
		if cut == 0 {
			return begin, nil
		}
		start := at + int64(i) + 1
		entry, err := parseEntry(bytes.TrimSuffix(tail[start-at:cut-at], []byte{'\n'}))
		if err == nil && !entry.partial || cut == end {
			if seen == lines {
				return begin, nil
			}
			seen++
		}
		begin, cut = start, start
	}
}

// output turns entries into the container's output.
type output struct {
	w    io.Writer
	opts Options
	left int64
	buf  []byte
	// inLine says that the last entry shown was a part whose line goes on.
	inLine bool
}

func (o *output) show(e entry) error {
	if o.opts.Stream != "" && e.stream != o.opts.Stream {
		return nil
	}
	if e.time.Before(o.opts.SinceTime) {
		return nil
	}
	o.buf = o.buf[:0]
	if o.opts.Timestamps && !o.inLine {
		o.buf = e.time.AppendFormat(o.buf, time.RFC3339Nano)
		o.buf = append(o.buf, ' ')
	}
	o.buf = append(o.buf, e.content...)
	if !e.partial {
		o.buf = append(o.buf, '\n')
	}
	o.inLine = e.partial
	limited := o.opts.LimitBytes != nil && int64(len(o.buf)) >= o.left
	if limited {
		o.buf = o.buf[:max(0, o.left)]
	}
	o.left -= int64(len(o.buf))
	if _, err := o.w.Write(o.buf); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	if limited {
		return errLimit
	}
	return nil
}
