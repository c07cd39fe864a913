package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// ClientConfig says how to reach a server.
type ClientConfig struct {
	// Address is "unix:///path/to/socket" or "host:port".
	Address string
	// CertFile, KeyFile and CAFile are the caller's certificate and the CA that signs the server's.
	// Required for host:port unless InsecureTCP. They are read again when the certificate changes.
	CertFile, KeyFile, CAFile string
	// ServerName is the name expected in the server's certificate; the host of Address when empty.
	ServerName string
	// InsecureTCP dials host:port without TLS.
	InsecureTCP bool
}

// Dial returns a connection that connects when it is first used and again, within a second or so, whenever it is
// lost. Calls made meanwhile fail with UNAVAILABLE unless they wait for ready.
func Dial(cfg ClientConfig, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	switch {
	case cfg.Address == "":
		return nil, fmt.Errorf("dial: no address")
	case strings.HasPrefix(cfg.Address, "unix:"), cfg.InsecureTCP:
	default:
		files, err := loadFiles(cfg.CertFile, cfg.KeyFile, cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", cfg.Address, err)
		}
		creds = credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13,
			RootCAs:    files.pool,
			ServerName: cfg.ServerName,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return files.certificate(), nil
			},
		})
	}
	own := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		// The cluster's own traffic has no business with a proxy meant for the outside.
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		// gRPC's default grows to two minutes: a restarted gateway must be found at once.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
	}
	conn, err := grpc.NewClient(cfg.Address, append(own, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", cfg.Address, err)
	}
	return conn, nil
}

// WaitServing blocks until the server behind conn reports that it serves, or ctx is done. A process that starts together
// with its server calls it before its first call, and so starts the moment the server does instead of after a
// failed call's pause.
func WaitServing(ctx context.Context, conn grpc.ClientConnInterface) error {
	// The stream ends with this call.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		for err == nil {
			var r *healthpb.HealthCheckResponse
			if r, err = watch.Recv(); err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING {
				return nil
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if status.Code(err) != codes.Unavailable {
			return fmt.Errorf("wait for the server: %w", err)
		}
		// The server went away meanwhile: WaitForReady waits for the next one.
	}
}
