package etcd_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/etcd"
	"trireme.dev/services/apiserver/internal/storage/etcd/embedded"
)

func begin(t *testing.T, cfg embedded.Config) (*embedded.Server, *etcd.Store) {
	t.Helper()
	cfg.NoFsync, cfg.Logger = true, slog.New(slog.DiscardHandler)
	srv, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := etcd.New(srv.Client(), embedded.MaxTxnOps)
	s.DefragmentLocal = srv.Defragment
	return srv, s
}

func put(t *testing.T, s *etcd.Store, key, value string) int64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), storage.Txn{Then: []storage.Op{{Key: key, Value: []byte(value)}}})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func save(t *testing.T, s *etcd.Store, file string) int64 {
	t.Helper()
	revision, r, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, r); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return revision
}

func TestARestoredStoreHoldsTheSnapshotAndNoWatchFromBefore(t *testing.T) {
	dir := t.TempDir()
	data, file := filepath.Join(dir, "etcd"), filepath.Join(dir, "backup")
	srv, s := begin(t, embedded.Config{Dir: data})
	put(t, s, "/a", "1")
	kept := put(t, s, "/b", "1")
	if revision := save(t, s, file); revision != kept {
		t.Errorf("snapshot is of revision %d, want %d", revision, kept)
	}
	put(t, s, "/a", "2")
	last := put(t, s, "/c", "later")

	if _, err := embedded.Restore(file, data); !errors.Is(err, embedded.ErrRunning) {
		t.Fatalf("restore under a running etcd: %v, want ErrRunning", err)
	}
	srv.Close()
	damaged := filepath.Join(dir, "damaged")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(damaged, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{damaged, filepath.Join(dir, "missing")} {
		if _, err := embedded.Restore(bad, data); err == nil {
			t.Fatalf("%s was restored", bad)
		} else if bad == damaged && !strings.Contains(err.Error(), "checksum") {
			t.Errorf("a damaged file is refused with %v, want a word about its checksum", err)
		}
	}

	done, err := embedded.Restore(file, data)
	if err != nil {
		t.Fatal(err)
	}
	if done.Keys != 2 || done.Kept == "" || done.Revision <= last {
		t.Errorf("restored %+v, want 2 keys, the old directory kept, a revision after %d", done, last)
	}
	if _, err := os.Stat(filepath.Join(done.Kept, "member", "snap", "db")); err != nil {
		t.Errorf("the old data: %v", err)
	}
	srv, s = begin(t, embedded.Config{Dir: data})
	defer srv.Close()
	page, err := s.List(t.Context(), "/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range page.Entries {
		found = append(found, e.Key+"="+string(e.Value))
	}
	if got := fmt.Sprint(found); got != "[/a=1 /b=1]" {
		t.Errorf("restored store holds %s", got)
	}
	// A watcher that has seen what is no more must not wait for it to happen again.
	err = s.Watch(t.Context(), "/", last, func(storage.Batch) error { return errors.New("delivered something") })
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a watch from before the restore: %v, want ErrCompacted", err)
	}
	if next := put(t, s, "/d", "1"); next <= last {
		t.Errorf("first write after the restore is at %d, before it stood at %d", next, last)
	}
}

func TestMembers(t *testing.T) {
	srv, s := begin(t, embedded.Config{Dir: t.TempDir()})
	defer srv.Close()
	revision := put(t, s, "/a", "1")
	members, err := s.Members(t.Context())
	if err != nil || len(members) != 1 {
		t.Fatalf("members %+v, %v", members, err)
	}
	m := members[0]
	if m.Err != nil || m.Name != "trireme" || !m.Leader || m.Revision != revision || m.Size == 0 || m.Version == "" || len(m.Alarms) > 0 {
		t.Errorf("member %+v", m)
	}
	if m.Quota != embedded.DefaultQuota {
		t.Errorf("quota %d, want %d", m.Quota, embedded.DefaultQuota)
	}
}

func TestAFullStoreSaysSoAndIsFreed(t *testing.T) {
	const quota = 2 << 20
	srv, s := begin(t, embedded.Config{Dir: t.TempDir(), Quota: quota})
	defer srv.Close()
	value := []byte(strings.Repeat("x", 64<<10))
	var full *storage.NoSpaceError
	for range 2000 { // of one key: all but the last is history. etcd learns its size once per batch, some tens of writes late
		_, err := s.Commit(t.Context(), storage.Txn{Then: []storage.Op{{Key: "/a", Value: value}}})
		if errors.As(err, &full) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if full == nil || full.Quota != quota {
		t.Fatalf("after 125 MiB: %+v, want an error with the quota", full)
	}
	members, err := s.Members(t.Context())
	if err != nil || len(members) != 1 || fmt.Sprint(members[0].Alarms) != "[NOSPACE]" {
		t.Fatalf("members of a full store: %+v, %v", members, err)
	}
	if err := s.Defragment(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, s, "/b", "1")
	if members, err = s.Members(t.Context()); err != nil || len(members[0].Alarms) > 0 {
		t.Errorf("after making room: %+v, %v", members, err)
	}
}
