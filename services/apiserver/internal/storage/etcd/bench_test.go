package etcd_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"trireme.dev/services/apiserver/internal/storage/etcd/embedded"
)

// writers at once, as the gateway's own benchmark has.
const writers = 32

// BenchmarkTxnPut is what etcd itself does on this machine: transactions that create one key of 1.2 KB each, from 32
// writers through etcd's own client, with the settings of the embedded server and nothing of the gateway.
func BenchmarkTxnPut(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	server, err := embedded.Start(ctx, embedded.Config{Dir: b.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { cancel(); server.Close() }()
	value := strings.Repeat("v", 1200)
	var n atomic.Int64
	b.SetParallelism(max(1, writers/runtime.GOMAXPROCS(0)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key := fmt.Sprintf("/bench/%d", n.Add(1))
			response, err := server.Client().Txn(ctx).
				If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, value)).Commit()
			if err != nil || !response.Succeeded {
				b.Errorf("put: %v", err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
}
