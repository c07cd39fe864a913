package memory_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/memory"
	"trireme.dev/services/apiserver/internal/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Store { return memory.New(memory.Config{}) })
}

func TestFaults(t *testing.T) {
	lost := errors.New("answer lost")
	var fail func(memory.Operation) error
	s := memory.New(memory.Config{Fault: func(op memory.Operation) error { return fail(op) }})
	put := storage.Txn{Then: []storage.Op{{Key: "/a", Value: []byte("1")}}}

	fail = func(op memory.Operation) error {
		if op.Name == "commit" && !op.Done {
			return storage.ErrUnavailable
		}
		return nil
	}
	if _, err := s.Commit(t.Context(), put); !errors.Is(err, storage.ErrUnavailable) {
		t.Fatal(err)
	}
	if _, found, _, _ := s.Get(t.Context(), "/a"); found {
		t.Fatal("a commit that failed before it began was applied")
	}
	fail = func(op memory.Operation) error {
		if op.Done {
			return lost
		}
		return nil
	}
	if _, err := s.Commit(t.Context(), put); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	if _, found, _, _ := s.Get(t.Context(), "/a"); !found {
		t.Fatal("a commit whose answer was lost must have been applied")
	}
}
