package recording

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"trireme.dev/kit/telemetry"
	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
)

// Version of the format that is written, and the only one that is read.
const Version = 1

// A record is the magic and then frames: the Header, and an Entry for each step. A frame is
//
//	length of the message | CRC of the message | CRC of these eight bytes | message
//
// with little-endian numbers of four bytes: a length that is wrong is told from a file that ends early.
const (
	magic       = "trireme record\n"
	frameHeader = 12
	// maxMessage bounds what a reader takes in at once; no object that a gateway takes comes near it.
	maxMessage = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maxWaiting steps wait to be written. A disk that is further behind will not catch up.
const maxWaiting = 1 << 18

// errBehind ends a record.
var errBehind = fmt.Errorf("the disk does not keep up: %d steps wait to be written", maxWaiting)

// File is a record that is being made. Nobody ever waits for it: what cannot be written ends the record, which is said
// once, and the scheduler goes on. Make it with Create.
type File struct {
	logger *slog.Logger
	file   *os.File
	out    *bufio.Writer
	done   chan struct{}

	mu      sync.Mutex
	waiting []Step
	spare   []Step
	some    chan struct{} // something waits, or it is closed
	closed  bool
	err     error
}

// Create begins a record. One of that name that is there already, from before a restart perhaps, is kept as NAME.old.
func Create(name string, header *recordv1.Header, logger *slog.Logger) (*File, error) {
	if err := os.Rename(name, name+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	f := &File{logger: logger, file: file, out: bufio.NewWriterSize(file, 1<<18), done: make(chan struct{}), some: make(chan struct{}, 1)}
	header = proto.CloneOf(header)
	header.Version = Version
	if _, err = f.out.WriteString(magic); err == nil {
		if _, err = f.frame(nil, header); err == nil {
			err = f.out.Flush()
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	go f.write()
	return f, nil
}

// Take writes a step, some time soon.
func (f *File) Take(s Step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.err != nil {
		return
	}
	if len(f.waiting) >= maxWaiting {
		f.fail(errBehind)
		return
	}
	if f.waiting = append(f.waiting, s); len(f.waiting) == 1 {
		f.wake()
	}
}

func (f *File) wake() {
	select {
	case f.some <- struct{}{}:
	default:
	}
}

// Close writes what waits.
func (f *File) Close() {
	f.mu.Lock()
	f.closed = true
	f.wake()
	f.mu.Unlock()
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.file.Close(); err != nil && f.err == nil {
		f.fail(err)
	}
}

// fail ends the record; f.mu is held.
func (f *File) fail(err error) {
	f.err, f.waiting = err, nil
	f.logger.Error("RECORDING HAS STOPPED: the record ends here, scheduling goes on",
		slog.String(telemetry.KeyPath, f.file.Name()), slog.Any(telemetry.KeyError, err))
}

// write writes what waits until the file is closed.
func (f *File) write() {
	defer close(f.done)
	var buf []byte
	for range f.some {
		for {
			f.mu.Lock()
			steps, closed := f.waiting, f.closed
			f.waiting, f.spare = f.spare[:0], nil
			f.mu.Unlock()
			if len(steps) == 0 {
				if closed {
					return
				}
				f.mu.Lock()
				f.spare = steps
				f.mu.Unlock()
				break
			}
			var err error
			buf, err = f.writeSteps(buf, steps)
			clear(steps)
			f.mu.Lock()
			f.spare = steps[:0]
			if err != nil && f.err == nil {
				f.fail(err)
			}
			f.mu.Unlock()
		}
	}
}

func (f *File) writeSteps(buf []byte, steps []Step) ([]byte, error) {
	for _, s := range steps {
		if s.Object != nil {
			object, err := proto.Marshal(s.Object)
			if err != nil {
				return buf, err
			}
			s.Entry.GetChange().Object = object
		}
		var err error
		if buf, err = f.frame(buf, s.Entry); err != nil {
			return buf, err
		}
	}
	return buf, f.out.Flush()
}

// frame writes a message, in the memory of buf.
func (f *File) frame(buf []byte, m proto.Message) ([]byte, error) {
	buf = slices.Grow(buf[:0], frameHeader)[:frameHeader]
	buf, err := proto.MarshalOptions{}.MarshalAppend(buf, m)
	if err != nil {
		return buf, err
	}
	message := buf[frameHeader:]
	binary.LittleEndian.PutUint32(buf, uint32(len(message)))
	binary.LittleEndian.PutUint32(buf[4:], crc32.Checksum(message, castagnoli))
	binary.LittleEndian.PutUint32(buf[8:], crc32.Checksum(buf[:8], castagnoli))
	_, err = f.out.Write(buf)
	return buf, err
}

// ErrTruncated says that a record ends within an entry, as one does whose scheduler was killed. All entries before it have
// been read.
var ErrTruncated = errors.New("the record ends within an entry")

// Reader reads a record. Make it with NewReader.
type Reader struct {
	in     *bufio.Reader
	header *recordv1.Header
	offset int64
	buf    []byte
}

// NewReader reads the beginning of a record.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, 1<<16), header: &recordv1.Header{}}
	found := make([]byte, len(magic))
	if _, err := io.ReadFull(r.in, found); err != nil || string(found) != magic {
		return nil, errors.New("this is no record of a scheduler")
	}
	r.offset = int64(len(magic))
	err := r.next(r.header)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, ErrTruncated):
		return nil, errors.New("the record ends within its header: it holds nothing")
	case err != nil:
		return nil, err
	case r.header.GetVersion() != Version:
		return nil, fmt.Errorf("the record has version %d, made by trireme %s; this trireme reads version %d",
			r.header.GetVersion(), r.header.GetProgram(), Version)
	}
	return r, nil
}

// Header of the record.
func (r *Reader) Header() *recordv1.Header { return r.header }

// Offset at which the next entry begins.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the next entry; io.EOF at the end, and ErrTruncated where the end is within an entry.
func (r *Reader) Next() (*recordv1.Entry, error) {
	e := &recordv1.Entry{}
	if err := r.next(e); err != nil {
		return nil, err
	}
	return e, nil
}

func (r *Reader) next(m proto.Message) error {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return ended(err)
	}
	if binary.LittleEndian.Uint32(head[8:]) != crc32.Checksum(head[:8], castagnoli) {
		return r.corrupt("the head of an entry has another checksum")
	}
	length := binary.LittleEndian.Uint32(head[:])
	if length > maxMessage {
		return r.corrupt(fmt.Sprintf("an entry is %d bytes long", length))
	}
	r.buf = slices.Grow(r.buf[:0], int(length))[:length]
	if _, err := io.ReadFull(r.in, r.buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return ended(err)
	}
	if binary.LittleEndian.Uint32(head[4:]) != crc32.Checksum(r.buf, castagnoli) {
		return r.corrupt("an entry has another checksum")
	}
	if err := proto.Unmarshal(r.buf, m); err != nil {
		return r.corrupt(err.Error())
	}
	r.offset += frameHeader + int64(length)
	return nil
}

func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}

func (r *Reader) corrupt(why string) error {
	return fmt.Errorf("the record is damaged at byte %d: %s", r.offset, why)
}
