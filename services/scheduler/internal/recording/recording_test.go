package recording_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	"trireme.dev/services/scheduler/internal/recording"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record makes one of n steps and returns what is in its file.
func record(t *testing.T, n int) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "record")
	f, err := recording.Create(name, &recordv1.Header{Program: "v1", Seed: 7}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	steps := recording.NewSteps(f.Take)
	for i := range n {
		steps.Begin()
		steps.EndChange("Node", &corev1.Node{Metadata: &metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}, i%2 == 1, false)
	}
	f.Close()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// read returns the names in a record, and how it ended.
func read(data []byte) (names []string, err error) {
	r, err := recording.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for {
		e, err := r.Next()
		if err != nil {
			return names, err
		}
		var n corev1.Node
		if err := proto.Unmarshal(e.GetChange().GetObject(), &n); err != nil {
			return names, err
		}
		names = append(names, n.GetMetadata().GetName())
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	names, err := read(record(t, 3))
	if !errors.Is(err, io.EOF) || fmt.Sprint(names) != "[n0 n1 n2]" {
		t.Errorf("read %v, %v", names, err)
	}
}

// TestTruncated cuts a record everywhere: what is whole is read, and the rest is no damage.
func TestTruncated(t *testing.T) {
	data := record(t, 4)
	seen := map[int]bool{}
	for cut := range data {
		names, err := read(data[:cut])
		seen[len(names)] = true
		switch {
		case errors.Is(err, recording.ErrTruncated), errors.Is(err, io.EOF):
		case len(names) == 0 && err != nil && (strings.Contains(err.Error(), "no record of a scheduler") || strings.Contains(err.Error(), "within its header")):
		default:
			t.Fatalf("cut at %d of %d: %v", cut, len(data), err)
		}
	}
	if len(seen) != 4 {
		t.Errorf("0 to 3 entries are to be read, read were %v", seen)
	}
}

// TestDamaged turns each byte after the header: it is never taken for anything else, and the offset is that of the entry.
func TestDamaged(t *testing.T) {
	data := record(t, 4)
	r, err := recording.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	begin := r.Offset()
	for i := int(begin); i < len(data); i++ {
		bad := bytes.Clone(data)
		bad[i] ^= 0x20
		names, err := read(bad)
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, recording.ErrTruncated) || !strings.Contains(err.Error(), "damaged at byte ") {
			t.Fatalf("byte %d turned: read %v, %v", i, names, err)
		}
		var at int
		if _, scan := fmt.Sscanf(err.Error(), "the record is damaged at byte %d:", &at); scan != nil || at > i || at < int(begin) {
			t.Fatalf("byte %d turned: %v", i, err)
		}
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	version := func(v int32) []byte {
		m, _ := proto.Marshal(&recordv1.Header{Version: v, Program: "v9.1"})
		head := make([]byte, 12)
		table := crc32.MakeTable(crc32.Castagnoli)
		binary.LittleEndian.PutUint32(head, uint32(len(m)))
		binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(m, table))
		binary.LittleEndian.PutUint32(head[8:], crc32.Checksum(head[:8], table))
		return append(append([]byte("trireme record\n"), head...), m...)
	}
	for want, data := range map[string][]byte{
		"this is no record of a scheduler":                                             []byte("apiVersion: v1\nkind: Pod\nmetadata: {}\n"),
		"the record has version 9, made by trireme v9.1; this trireme reads version 1": version(9),
		"the record ends within its header: it holds nothing":                          []byte("trireme record\n"),
	} {
		if _, err := recording.NewReader(bytes.NewReader(data)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestFullDiskEndsTheRecord says so once, and steps go on.
func TestFullDiskEndsTheRecord(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	var log bytes.Buffer
	name := filepath.Join(t.TempDir(), "record")
	f, err := recording.Create(name, &recordv1.Header{}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	recording.Break(t, f)
	steps := recording.NewSteps(f.Take)
	for range 10000 {
		steps.Begin()
		steps.End(&recordv1.Entry{Step: &recordv1.Entry_Idle{Idle: &recordv1.Idle{}}})
	}
	f.Close()
	if n := strings.Count(log.String(), "RECORDING HAS STOPPED"); n != 1 || !strings.Contains(log.String(), "no space left on device") {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
}

// TestEarlierRecordIsKept: a scheduler that was restarted does not destroy what explains its end.
func TestEarlierRecordIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "record")
	for seed := range uint64(3) {
		f, err := recording.Create(name, &recordv1.Header{Seed: seed}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	for file, want := range map[string]uint64{name: 2, name + ".old": 1} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := recording.NewReader(bytes.NewReader(data))
		if err != nil || r.Header().GetSeed() != want {
			t.Errorf("%s: seed %d, %v, want %d", file, r.Header().GetSeed(), err, want)
		}
	}
}
