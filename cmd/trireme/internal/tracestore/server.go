package tracestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	_ "google.golang.org/grpc/encoding/gzip" // what OTEL_EXPORTER_OTLP_COMPRESSION may ask for

	"trireme.dev/cmd/trireme/internal/otlpjson"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry"
)

// ServerConfig says where a store is served.
type ServerConfig struct {
	// Spans is where spans come in over OTLP/gRPC: a unix socket, and host:port with mutual TLS where one is named.
	Spans rpc.ServerConfig
	// QuerySocket is the path of the unix socket on which traces are asked for over HTTP.
	QuerySocket string
}

// Server serves a Store.
type Server struct {
	store  *Store
	logger *slog.Logger
	spans  *rpc.Server
	query  net.Listener
}

// NewServer listens for questions; it takes spans once it runs. Its sockets have mode 0600.
func NewServer(cfg ServerConfig, store *Store, logger *slog.Logger) (*Server, error) {
	spans, err := rpc.NewServer(cfg.Spans, logger)
	if err != nil {
		return nil, err
	}
	collectorpb.RegisterTraceServiceServer(spans, &collector{store: store, logger: logger})
	query, err := rpc.ListenUnix(cfg.QuerySocket)
	if err != nil {
		return nil, err
	}
	return &Server{store: store, logger: logger, spans: spans, query: query}, nil
}

// Ready is closed once spans are taken.
func (s *Server) Ready() <-chan struct{} { return s.spans.Ready() }

// Addr is where spans are taken over TCP, nil where they are not. Valid once Ready is closed.
func (s *Server) Addr() net.Addr { return s.spans.Addr() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	return daemon.Run(ctx,
		daemon.Task{Name: "spans", Run: s.spans.Run},
		daemon.Task{Name: "query", Run: s.runQuery})
}

func (s *Server) runQuery(ctx context.Context) error {
	server := &http.Server{Handler: Handler(s.store), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // an answer that is under way may be asked for again
	defer stop()
	if err := server.Serve(s.query); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve traces: %w", err)
	}
	return nil
}

// collector takes spans.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer

	store  *Store
	logger *slog.Logger
}

// Export implements OTLP's TraceService.
func (c *collector) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	rejected, err := c.store.Add(req.GetResourceSpans())
	if err != nil {
		return nil, err
	}
	out := &collectorpb.ExportTraceServiceResponse{}
	if rejected > 0 {
		c.logger.LogAttrs(ctx, slog.LevelDebug, "spans not kept", slog.Int(telemetry.KeyCount, rejected))
		out.PartialSuccess = &collectorpb.ExportTracePartialSuccess{
			RejectedSpans: int64(rejected), ErrorMessage: "their trace is too large, or was pushed out by newer ones",
		}
	}
	return out, nil
}

// Handler answers the questions that `trireme trace` asks, as Jaeger answers them:
//
//	GET /api/v3/traces/{id}                          the spans of a trace, in OTLP's JSON form below "result"
//	GET /api/traces?service=NAME&tags=JSON&limit=N   the traces with such a span; their ids only, below "data"
func Handler(store *Store) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v3/traces/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, err := ParseTraceID(r.PathValue("id"))
		if err != nil {
			refuse(w, http.StatusBadRequest, "malformed parameter trace_id: "+err.Error())
			return
		}
		data, err := store.Get(id)
		switch {
		case errors.Is(err, ErrNotFound):
			refuse(w, http.StatusNotFound, "No traces found")
		case err != nil:
			refuse(w, http.StatusInternalServerError, err.Error())
		default:
			answer(w, otlpjson.Response{Result: data})
		}
	})
	mux.HandleFunc("GET /api/traces", func(w http.ResponseWriter, r *http.Request) {
		tags, limit := map[string]string{}, 100
		if text := r.FormValue("tags"); text != "" {
			if err := json.Unmarshal([]byte(text), &tags); err != nil {
				refuse(w, http.StatusBadRequest, "malformed parameter tags: "+err.Error())
				return
			}
		}
		if text := r.FormValue("limit"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				refuse(w, http.StatusBadRequest, "malformed parameter limit: "+text)
				return
			}
			limit = n
		}
		found, err := store.Find(r.FormValue("service"), tags, limit)
		if err != nil {
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
		out := otlpjson.Found{Data: make([]otlpjson.FoundTrace, len(found))}
		for i, id := range found {
			out.Data[i].TraceID = id.String()
		}
		answer(w, out)
	})
	return mux
}

func answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what) // whoever asked has gone
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(otlpjson.Response{Error: &otlpjson.Error{HTTPCode: code, Message: message}}) // as above
}
