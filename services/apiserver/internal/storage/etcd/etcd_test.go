package etcd_test

import (
	"log/slog"
	"testing"

	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/etcd"
	"trireme.dev/services/apiserver/internal/storage/etcd/embedded"
	"trireme.dev/services/apiserver/internal/storage/storagetest"
)

func open(t *testing.T) *embedded.Server {
	t.Helper()
	srv, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), NoFsync: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	return srv
}

func TestSuite(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		return etcd.New(open(t).Client(), embedded.MaxTxnOps)
	})
}

func TestProbe(t *testing.T) {
	s := etcd.New(open(t).Client(), 0)
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.MaxOps() != embedded.MaxTxnOps {
		t.Fatalf("probe found %d operations, etcd takes %d", s.MaxOps(), embedded.MaxTxnOps)
	}
}
