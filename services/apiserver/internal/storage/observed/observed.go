// Package observed is a store as its callers feel it: how long operations take, how many objects there are, and, under
// a request that is traced, a span around each commit. It changes nothing of what the store does.
package observed

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client/metrics"
	"trireme.dev/client/tracing"
	"trireme.dev/services/apiserver/internal/storage"
)

// TxnSpan is the name of the span around a commit.
const TxnSpan = "Txn"

// bounds in seconds are those of Kubernetes for requests to etcd.
var bounds = []float64{
	0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
}

// operations by which durations are told apart. A commit of several keys is a txn.
var operations = []string{"get", "list", "create", "update", "delete", "txn"}

// countTimeout bounds how long a reader of metrics waits for the store.
const countTimeout = 5 * time.Second

// Store is a storage.Store over another.
type Store struct {
	storage.Store

	seconds metric.Float64Histogram
	// options hold the attributes of each operation by kind, made once.
	options map[string]map[string][]metric.RecordOption
	other   map[string][]metric.RecordOption
	kinds   []Kind
}

// Kind is what the keys with a prefix are.
type Kind struct{ Prefix, Resource string }

// New returns the store for keys of the kinds.
func New(store storage.Store, kinds []Kind) *Store {
	s := &Store{
		Store: store, kinds: kinds, options: map[string]map[string][]metric.RecordOption{},
		seconds: metrics.Histogram("etcd_request_duration_seconds", "Duration of requests to the store, by operation and resource.", bounds),
	}
	for _, k := range kinds {
		s.options[k.Prefix] = optionsOf(k.Resource)
	}
	s.other = optionsOf("")
	return s
}

func optionsOf(resource string) map[string][]metric.RecordOption {
	out := map[string][]metric.RecordOption{}
	for _, op := range operations {
		out[op] = []metric.RecordOption{metrics.Labels("operation", op, "type", resource)}
	}
	return out
}

// Run counts objects for those who read metrics, until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	metrics.UntilDone(ctx, metrics.Gauge("apiserver_storage_objects", "Objects stored, by resource; -1 where the store does not say.",
		func(report func(float64, ...string)) { s.count(ctx, report) }))
	return nil
}

// count asks for one key of each kind: the store says how many follow.
func (s *Store) count(ctx context.Context, report func(float64, ...string)) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	counts := make([]int64, len(s.kinds))
	var wg sync.WaitGroup
	for i, k := range s.kinds {
		wg.Go(func() {
			page, err := s.Store.List(ctx, k.Prefix, storage.ListOptions{Limit: 1})
			counts[i] = int64(len(page.Entries)) + page.Remaining
			if err != nil {
				counts[i] = -1 // as in Kubernetes
			}
		})
	}
	wg.Wait()
	for i, k := range s.kinds {
		report(float64(counts[i]), "resource", k.Resource)
	}
}

func (s *Store) took(ctx context.Context, operation, key string, begin time.Time) {
	options := s.options[storage.KindPrefix(key)]
	if options == nil {
		options = s.other
	}
	s.seconds.Record(ctx, time.Since(begin).Seconds(), options[operation]...)
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) (storage.Entry, bool, int64, error) {
	begin := time.Now()
	entry, found, revision, err := s.Store.Get(ctx, key)
	s.took(ctx, "get", key, begin)
	return entry, found, revision, err
}

// List implements storage.Store.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	begin := time.Now()
	page, err := s.Store.List(ctx, prefix, opts)
	s.took(ctx, "list", prefix, begin)
	return page, err
}

// Commit implements storage.Store.
func (s *Store) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if len(txn.Then) == 0 {
		return s.Store.Commit(ctx, txn) // which refuses it
	}
	begin := time.Now()
	revision, err := s.commit(ctx, txn)
	s.took(ctx, operation(txn), txn.Then[0].Key, begin)
	return revision, err
}

func (s *Store) commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return s.Store.Commit(ctx, txn)
	}
	ctx, span := tracing.Start(ctx, TxnSpan, tracing.KeyCount.Int(len(txn.Then)))
	defer span.End()
	revision, err := s.Store.Commit(ctx, txn)
	tracing.Fail(span, err)
	if err == nil {
		span.SetAttributes(tracing.KeyRevision.Int64(revision))
	}
	return revision, err
}

func operation(txn storage.Txn) string {
	switch {
	case len(txn.Then) > 1:
		return "txn"
	case txn.Then[0].Value == nil:
		return "delete"
	case len(txn.If) == 1 && txn.If[0].Revision == 0:
		return "create"
	}
	return "update"
}
