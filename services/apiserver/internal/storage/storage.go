// Package storage says what the gateway needs of the store that holds all state: ordered keys with history, atomic
// commits at one revision, and a watch that misses nothing. It knows keys and bytes only, never objects.
//
// Two engines implement it: storage/etcd, the real one, and storage/memory, for tests. Both pass storagetest. The chain
// is gateway → admission → registry → watchcache → storage.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Store is an ordered map of keys with revisions. Every commit moves the revision of the whole store on, and all keys of
// one commit bear the same revision. Commits that are under way together may share one. All methods may be called
// concurrently. Reads are linearizable unless a revision is given.
type Store interface {
	// Get returns the value of key now, and the revision of the store it was read at. Found is false where the key
	// does not exist.
	Get(ctx context.Context, key string) (entry Entry, found bool, revision int64, err error)

	// List returns entries with the prefix in order of key, as one snapshot.
	List(ctx context.Context, prefix string, opts ListOptions) (Page, error)

	// Commit applies all operations at one new revision, or none where a condition does not hold: then the error is a
	// *ConflictError. A commit without operations is refused.
	Commit(ctx context.Context, txn Txn) (revision int64, err error)

	// Watch calls emit with every change of keys with the prefix after a revision, in order, in batches that never
	// split a revision. It blocks until ctx ends (returning its error), emit fails (returning that error), or the
	// history after that revision is gone (ErrCompacted).
	Watch(ctx context.Context, prefix string, opts WatchOptions, emit func(Batch) error) error

	// Revision returns the revision of the last commit.
	Revision(ctx context.Context) (int64, error)

	// Compact forgets history before revision: reads and watches older than it fail with ErrCompacted.
	Compact(ctx context.Context, revision int64) error

	// Snapshot returns the whole store as a file that Restore of the same engine takes, and a revision up to which all is
	// in it. The caller closes it. ErrUnsupported where the store does not outlive the process.
	Snapshot(ctx context.Context) (revision int64, snapshot io.ReadCloser, err error)

	// Members tells of the processes that keep the store. One that does not answer is listed with its error.
	// ErrUnsupported where there are none.
	Members(ctx context.Context) ([]Member, error)

	// Defragment forgets history up to now, gives free space back to the disk and takes back what was refused for want of
	// space. ErrUnsupported where there is nothing to gain.
	Defragment(ctx context.Context) error
}

// Member is one process that keeps the store.
type Member struct {
	// Name and the Endpoint at which it was asked; the latter is empty where it runs in this process.
	Name, Endpoint string
	// Err says why it does not answer; nothing below is known then.
	Err error
	// Version of its program.
	Version string
	// Leader orders all writes; a Learner does not vote yet.
	Leader, Learner bool
	// Size of its file in bytes, what of it is InUse, and the Quota that it may not outgrow.
	Size, InUse, Quota int64
	Revision           int64
	// Alarms that it raises, in its own words: NOSPACE.
	Alarms []string
}

// Entry is one key at one revision.
type Entry struct {
	Key   string
	Value []byte // shared: never modified
	// Revision of the last change of the key.
	Revision int64
	// Created is the revision at which the key last came into being.
	Created int64
}

// ListOptions narrow a List.
type ListOptions struct {
	// Revision to read at; 0 for now.
	Revision int64
	// From is the first key wanted, included; empty for the first with the prefix.
	From string
	// Limit is the largest number of entries wanted; 0 for all.
	Limit int64
}

// Page is part of a snapshot.
type Page struct {
	Entries []Entry
	// Revision of the snapshot: the one asked for, or that of the store at the time of reading.
	Revision int64
	// More is true where entries follow, and Remaining then counts them.
	More      bool
	Remaining int64
}

// Txn is a set of conditions and of operations. A key may stand in at most one operation.
type Txn struct {
	If   []Condition
	Then []Op
}

// Condition holds while the key's last change is at Revision; 0 means that the key must not exist.
type Condition struct {
	Key      string
	Revision int64
}

// Op writes Value to Key, or deletes it where Value is nil.
type Op struct {
	Key   string
	Value []byte
	// TTL is after how long the store deletes the key by itself, unless it is written again: not sooner, and later by a
	// twentieth of it or a minute, whichever is less, but a second at least. 0 keeps it. Watchers see it deleted.
	TTL time.Duration
}

// WatchOptions say what a Watch begins with and brings.
type WatchOptions struct {
	// After is the last revision that the caller knows.
	After int64
	// Previous asks for the value before each change. Who keeps all values spares the store the search for them.
	Previous bool
	// Progress, where it is not nil, asks by each value for a batch soon, even one without events: it says how far the
	// watch has come. That is what the server of the watch has applied, and so proves nothing about what others have
	// committed.
	Progress <-chan struct{}
}

// Batch is a run of events of whole revisions. A batch without events says only that everything up to Revision has been
// seen.
type Batch struct {
	Events   []Event
	Revision int64
}

// Event is one change of one key.
type Event struct {
	Key string
	// Value after the change; nil where the key was deleted.
	Value []byte
	// Previous value; nil where the key was created, or where WatchOptions do not ask for it.
	Previous []byte
	Revision int64
	// PreviousRevision is that of the change before; 0 where Previous is nil.
	PreviousRevision int64
}

// ErrCompacted says that history asked for is gone.
var ErrCompacted = errors.New("revision has been compacted")

// ErrFutureRevision says that the revision asked for has not happened yet.
var ErrFutureRevision = errors.New("revision is in the future")

// ErrTooLarge says that a commit has more operations or bytes than the store takes.
var ErrTooLarge = errors.New("transaction is larger than the store accepts")

// ErrUnavailable says that the store cannot answer now; whether a commit happened is unknown.
var ErrUnavailable = errors.New("store is unavailable")

// NoSpaceError says that the store has reached its quota and takes no writes that add anything.
type NoSpaceError struct {
	// Quota in bytes; 0 where it is not known.
	Quota int64
}

func (e *NoSpaceError) Error() string {
	if e.Quota == 0 {
		return "etcd's database has reached its quota"
	}
	return fmt.Sprintf("etcd's database has reached its quota of %.4g MiB", float64(e.Quota)/(1<<20))
}

// ErrUnsupported says that an engine has no use for an operation.
var ErrUnsupported = errors.New("this store does not do that")

// ConflictError says which conditions of a commit did not hold.
type ConflictError struct {
	// Current holds, for each failed condition, the key as it is now, without its value; Revision is 0 where it does not
	// exist.
	Current []Entry
}

func (e *ConflictError) Error() string {
	if len(e.Current) == 0 {
		return "a condition of the commit no longer holds"
	}
	return fmt.Sprintf("%s is at revision %d", e.Current[0].Key, e.Current[0].Revision)
}

// PrefixEnd returns the first key after all keys with the prefix; empty where there is none.
func PrefixEnd(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1])
		}
	}
	return ""
}

// KindPrefix is the part of a key that names its kind: /trireme/<group>/<plural>/. It is empty for a key without one.
func KindPrefix(key string) string {
	end := 0
	for range 4 {
		i := strings.IndexByte(key[end:], '/')
		if i < 0 {
			return ""
		}
		end += i + 1
	}
	return key[:end]
}
