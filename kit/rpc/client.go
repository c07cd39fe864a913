package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

// pickOne spreads clients over the servers of a list: each goes through it in an order of its own and stays with the
// first that answers. Not round_robin: a client's calls and watches then share one connection and one fate, a thousand
// node agents do not hold a connection to every gateway, and nothing is gained for watches, which last longer than any
// balance. Where the server goes away, the next in order is tried at once.
const pickOne = `{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}`

// Windows in which servers may send before the client has read. They hold a response of a list or a watch, so that neither
// side stops within one. Fixed, because gRPC's own measuring of the line costs messages back and forth all the time.
const (
	streamWindow = 2 << 20
	connWindow   = 4 << 20
)

// ClientConfig says how to reach a server.
type ClientConfig struct {
	// Address is "unix:///path/to/socket" or "host:port"; or several "host:port", separated by commas, of servers that
	// can stand in for one another.
	Address string
	// CertFile, KeyFile and CAFile are the caller's certificate and the CA that signs the server's.
	// Required for host:port unless InsecureTCP. They are read again when the certificate changes.
	CertFile, KeyFile, CAFile string
	// ServerName is the name expected in the server's certificate; the host of Address when empty.
	ServerName string
	// InsecureTCP dials host:port without TLS.
	InsecureTCP bool
}

// AddFlags registers the flags by which services are told how to reach the gateway and who they are:
// --apiserver, --cert, --key, --ca and --insecure.
func (c *ClientConfig) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Address, "apiserver", c.Address, "`address` of the gateway: unix:///path or host:port; several, comma-separated, where there are several gateways")
	fs.StringVar(&c.CertFile, "cert", c.CertFile, "`file` with this service's certificate")
	fs.StringVar(&c.KeyFile, "key", c.KeyFile, "`file` with its key")
	fs.StringVar(&c.CAFile, "ca", c.CAFile, "`file` with the cluster's CA")
	fs.BoolVar(&c.InsecureTCP, "insecure", c.InsecureTCP, "speak TCP without TLS, and let anyone call")
}

// Validate names what is wrong with the address.
func (c *ClientConfig) Validate() error {
	if c.Address == "" {
		return errors.New("--apiserver: an address is needed")
	}
	_, err := c.servers()
	if err != nil {
		return fmt.Errorf("--apiserver: %w", err)
	}
	return nil
}

// servers are the members of a list; none where Address is a single one.
func (c *ClientConfig) servers() ([]string, error) {
	if !strings.Contains(c.Address, ",") {
		return nil, nil
	}
	list := strings.Split(c.Address, ",")
	for i, a := range list {
		list[i] = strings.TrimSpace(a)
		if host, _, err := net.SplitHostPort(list[i]); err != nil || host == "" || strings.HasPrefix(list[i], "unix:") {
			return nil, fmt.Errorf("%q: want host:port, or several separated by commas", list[i])
		}
	}
	return list, nil
}

// Dial returns a connection that connects when it is first used and again, within a second or so, whenever it is
// lost; with several servers, to the next one. Calls made meanwhile fail with UNAVAILABLE unless they wait for ready.
func Dial(cfg ClientConfig, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	if cfg.Address == "" {
		return nil, fmt.Errorf("dial: no address")
	}
	servers, err := cfg.servers()
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	creds, err := clientCredentials(cfg)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", cfg.Address, err)
	}
	own := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		// The cluster's own traffic has no business with a proxy meant for the outside.
		grpc.WithNoProxy(),
		grpc.WithDefaultServiceConfig(pickOne),
		// Ours is all there is: a name is not to wait for a TXT record, ten seconds where no name server knows of any.
		grpc.WithDisableServiceConfig(),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		// gRPC's default grows to two minutes: a restarted gateway must be found at once.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
	}
	own = append(own, clientSpans()...)
	own = append(own, clientMetrics(cfg.Address)...)
	target := cfg.Address
	if servers != nil {
		list := manual.NewBuilderWithScheme("gateways")
		state := resolver.State{}
		for _, s := range servers {
			host, _, _ := net.SplitHostPort(s) // servers has checked it
			// Each proves to be the host that was dialled.
			state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: s, ServerName: host}}})
		}
		list.InitialState(state)
		own = append(own, grpc.WithResolvers(list))
		target = "gateways:///" + servers[0]
	}
	conn, err := grpc.NewClient(target, append(own, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", cfg.Address, err)
	}
	return conn, nil
}

func clientCredentials(cfg ClientConfig) (credentials.TransportCredentials, error) {
	if strings.HasPrefix(cfg.Address, "unix:") || cfg.InsecureTCP {
		return insecure.NewCredentials(), nil
	}
	files, err := loadFiles(cfg.CertFile, cfg.KeyFile, cfg.CAFile)
	if err != nil {
		return nil, err
	}
	name := cfg.ServerName
	if strings.Contains(name, ":") && net.ParseIP(name) == nil {
		// gRPC takes this for an authority and would cut off what looks like a port: system:trireme-scheduler.
		name = net.JoinHostPort(name, "443")
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    files.pool,
		ServerName: name,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return files.certificate(), nil
		},
	}), nil
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
