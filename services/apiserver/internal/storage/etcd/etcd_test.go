package etcd_test

import (
	"log/slog"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

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
	// One etcd for all: starting it takes longer than most tests.
	client := open(t).Client()
	storagetest.Run(t, func(t *testing.T) storage.Store {
		if _, err := client.Delete(t.Context(), "\x00", clientv3.WithFromKey()); err != nil {
			t.Fatal(err)
		}
		return etcd.New(client, embedded.MaxTxnOps)
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
