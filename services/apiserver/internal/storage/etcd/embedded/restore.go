package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// revisionBump is by how much the revision jumps when a snapshot is restored. More has never been written between a
// backup and its restore, so no client has seen a revision beyond, and every watch from before is told to list again
// instead of waiting for a past that comes twice.
const revisionBump = 1_000_000_000

// lockWait is how long to wait for the lock of a data directory before its etcd counts as running.
const lockWait = 500 * time.Millisecond

// ErrRunning says that an etcd has a data directory open.
var ErrRunning = errors.New("etcd is running on it")

// Restored says what a restore did.
type Restored struct {
	// Revision that the store has now.
	Revision int64
	// Keys in it.
	Keys int
	// Kept is where the data directory from before is; empty where there was none.
	Kept string
}

// Restore makes the data directory dir from a snapshot, as Store.Snapshot gives it. What was there is kept beside it,
// under a name with the time. A snapshot whose checksum is wrong is refused before anything is touched, and so is a
// directory that an etcd uses.
func Restore(file, dir string) (Restored, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Restored{}, err
	}
	if err := idle(dir); err != nil {
		return Restored{}, err
	}
	fresh := dir + ".restoring"
	if err := os.RemoveAll(fresh); err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	s := &Server{}
	defer s.removeSocket()
	// The restored member has the peer address that Start will advertise for dir.
	conf, err := s.configure(Config{Dir: dir})
	if err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	snapshots := snapshot.NewV3(zap.NewNop())
	err = snapshots.Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: memberName, OutputDataDir: fresh,
		PeerURLs:            []string{conf.AdvertisePeerUrls[0].String()},
		InitialCluster:      conf.InitialCluster,
		InitialClusterToken: conf.InitialClusterToken,
		RevisionBump:        revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return Restored{}, errors.Join(fmt.Errorf("restore %s: %w", file, readable(err)), os.RemoveAll(fresh))
	}
	// Of the file, not of what was made of it: the jump of the revision has left a mark there that counts as a key.
	status, err := snapshots.Status(file)
	if err != nil {
		return Restored{}, errors.Join(fmt.Errorf("restore %s: %w", file, err), os.RemoveAll(fresh))
	}
	out := Restored{Revision: status.Revision + revisionBump, Keys: status.TotalKey}
	if _, err := os.Stat(dir); err == nil {
		out.Kept = dir + ".before-" + time.Now().UTC().Format("20060102T150405Z")
		if err := os.Rename(dir, out.Kept); err != nil {
			return Restored{}, fmt.Errorf("restore: keep what was there: %w", err)
		}
	}
	if err := os.Rename(fresh, dir); err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	return out, nil
}

// idle refuses a data directory whose etcd runs: it holds a lock on its database.
func idle(dir string) error {
	db := filepath.Join(dir, "member", "snap", "db")
	if _, err := os.Stat(db); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	opened, err := bbolt.Open(db, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockWait})
	if errors.Is(err, bbolt.ErrTimeout) {
		return fmt.Errorf("%s: %w: stop the cluster first", dir, ErrRunning)
	}
	if err != nil {
		// A database that cannot be opened is a reason to restore, not one against it.
		return nil
	}
	return opened.Close()
}

// readable puts etcd's words for a bad file into ours.
func readable(err error) error {
	if text := err.Error(); strings.Contains(text, "sha256") || strings.Contains(text, "hash") {
		return errors.New("the checksum is wrong: the file is damaged, or no snapshot")
	}
	return err
}
