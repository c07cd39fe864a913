package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func create(t *testing.T, rotation Rotation) (*Writer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	w, err := Create(path, rotation)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, path
}

func copyAll(t *testing.T, w *Writer, stream Stream, text string) {
	t.Helper()
	if err := w.Copy(stream, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

func TestFormat(t *testing.T) {
	w, path := create(t, Rotation{})
	long := strings.Repeat("a", maxPart) + strings.Repeat("b", 10)
	copyAll(t, w, Stdout, "one\n\n"+long+"\nno newline")
	copyAll(t, w, Stderr, "two\n")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(data)) {
		stamp, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil || time.Since(at) > time.Minute || !strings.HasSuffix(stamp, "Z") {
			t.Errorf("time %q: %v", stamp, err)
		}
		got = append(got, rest)
	}
	want := []string{
		"stdout F one", "stdout F ", "stdout P " + long[:maxPart], "stdout F bbbbbbbbbb", "stdout F no newline", "stderr F two",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %.200q, want %.200q", got, want)
	}
}

// A stream that is closed in the middle of a line goes on in that line later.
func TestClosedInTheMiddle(t *testing.T) {
	w, path := create(t, Rotation{})
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	done := make(chan error, 1)
	go func() { done <- w.Copy(Stdout, in) }()
	if _, err := out.WriteString("first\nhalf a"); err != nil {
		t.Fatal(err)
	}
	// The first line in the log says that the rest has been read too.
	ctx, cancel := context.WithCancel(t.Context())
	_ = Read(ctx, path, Options{Follow: true}, writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil }))
	_ = in.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	copyAll(t, w, Stdout, " line\n")
	var buf bytes.Buffer
	if err := Read(t.Context(), path, Options{}, &buf); err != nil {
		t.Fatal(err)
	}
	if buf.String() != "first\nhalf a line\n" {
		t.Errorf("got %q", buf.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	lines := "2026-01-01T00:00:01.000000000Z stdout F one\n" +
		"2026-01-01T00:00:02.000000000Z stderr F two\n" +
		"2026-01-01T00:00:03.000000000Z stdout P thr\n" +
		"2026-01-01T00:00:03.100000000Z stdout F ee\n" +
		"2026-01-01T00:00:04.500000000Z stdout F four\n"
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	n := func(i int64) *int64 { return &i }
	for _, tt := range []struct {
		name string
		opts Options
		want string
	}{
		{"all", Options{}, "one\ntwo\nthree\nfour\n"},
		{"none", Options{TailLines: n(0)}, ""},
		{"last", Options{TailLines: n(1)}, "four\n"},
		{"last two, one in parts", Options{TailLines: n(2)}, "three\nfour\n"},
		{"more than there are", Options{TailLines: n(9)}, "one\ntwo\nthree\nfour\n"},
		{"since", Options{SinceTime: time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)}, "three\nfour\n"},
		{"limit", Options{LimitBytes: n(6)}, "one\ntw"},
		{"limit at the end of a line", Options{LimitBytes: n(4)}, "one\n"},
		{"times", Options{Timestamps: true, TailLines: n(2)}, "2026-01-01T00:00:03Z three\n2026-01-01T00:00:04.5Z four\n"},
		{"stream", Options{Stream: Stderr}, "two\n"},
	} {
		var buf bytes.Buffer
		if err := Read(t.Context(), path, tt.opts, &buf); err != nil || buf.String() != tt.want {
			t.Errorf("%s: %q %v, want %q", tt.name, buf.String(), err, tt.want)
		}
	}
	if err := Read(t.Context(), path+"-absent", Options{}, io.Discard); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent log: %v", err)
	}
}

func TestTailOfManyBlocks(t *testing.T) {
	w, path := create(t, Rotation{MaxBytes: 1 << 30})
	var all []string
	for i := range 3000 {
		all = append(all, fmt.Sprintf("%d-%s", i, strings.Repeat("x", i%400)))
	}
	copyAll(t, w, Stdout, strings.Join(all, "\n")+"\n")
	for _, count := range []int64{1, 2, 299, 2999, 3000, 4000} {
		var buf bytes.Buffer
		if err := Read(t.Context(), path, Options{TailLines: &count}, &buf); err != nil {
			t.Fatal(err)
		}
		want := strings.Join(all[max(0, len(all)-int(count)):], "\n") + "\n"
		if buf.String() != want {
			t.Errorf("last %d lines: %d bytes, want %d", count, buf.Len(), len(want))
		}
	}
}

func TestRotation(t *testing.T) {
	w, path := create(t, Rotation{MaxBytes: 1000, MaxFiles: 3})
	for i := range 200 {
		copyAll(t, w, Stdout, fmt.Sprintf("line %d\n", i))
	}
	old, err := rotated(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(old) != 2 {
		t.Errorf("%d files set aside, want 2", len(old))
	}
	for _, file := range append(old, path) {
		if info, err := os.Stat(file); err != nil || info.Size() > 1000 || info.Size() == 0 {
			t.Errorf("file %s: %v %v", file, info, err)
		}
	}
}

// A follower sees every line, through rotations and from before the file exists, and ends when the container has.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	ended := make(chan struct{})
	var buf bytes.Buffer
	done := make(chan error, 1)
	seen := make(chan struct{}, 10_000)
	go func() {
		done <- Read(t.Context(), path, Options{Follow: true, Ended: ended}, writerFunc(func(b []byte) (int, error) {
			seen <- struct{}{}
			return buf.Write(b)
		}))
	}()
	w, err := Create(path, Rotation{MaxBytes: 2000, MaxFiles: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var want strings.Builder
	for i := range 1000 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		copyAll(t, w, Stdout, line)
		if i == 10 {
			<-seen // it follows from here on
		}
	}
	close(ended)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if buf.String() != want.String() {
		t.Errorf("followed %d bytes, want %d", buf.Len(), want.Len())
	}
}

func TestFollowCancelled(t *testing.T) {
	_, path := create(t, Rotation{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Read(ctx, path, Options{Follow: true}, io.Discard) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
