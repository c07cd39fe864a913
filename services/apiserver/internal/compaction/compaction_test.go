package compaction_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"trireme.dev/services/apiserver/internal/compaction"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Three gateways that started at different times: history lasts for five minutes at least and somewhat more than ten at
// most, and each round one of them compacts.
func TestHistoryOfFiveToTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		compactions := 0
		s := memory.New(memory.Config{Fault: func(op memory.Operation) error {
			if op.Name == "compact" {
				compactions++
			}
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 3)
		write := func() int64 {
			revision, err := s.Commit(ctx, storage.Txn{Then: []storage.Op{{Key: "/a", Value: []byte(fmt.Sprint(time.Now()))}}})
			if err != nil {
				t.Fatal(err)
			}
			return revision
		}
		written := map[int64]time.Time{} // by revision
		const minutes = 60
		for i := range minutes {
			if i < 3 {
				go func() { ended <- compaction.New(s, slog.New(slog.DiscardHandler)).Run(ctx) }()
			}
			written[write()] = time.Now()
			time.Sleep(time.Minute)
		}
		for revision, at := range written {
			_, err := s.List(ctx, "/a", storage.ListOptions{Revision: revision})
			switch age := time.Since(at); {
			case age <= compaction.Period && err != nil:
				t.Errorf("%s old: %v", age, err)
			case age > 2*compaction.Period+time.Minute && !errors.Is(err, storage.ErrCompacted):
				t.Errorf("%s old: %v, want it forgotten", age, err)
			}
		}
		if compactions < minutes/5-3 || compactions > minutes/5 {
			t.Errorf("%d compactions in %d minutes", compactions, minutes)
		}
		cancel()
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
