// Package embedded runs a single-member etcd inside the gateway's process. The gateway talks to it by function calls:
// no client port is opened, and the peer listener that etcd insists on is a unix socket.
package embedded

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

const (
	// MaxTxnOps and maxRequestBytes let a gang of 5,000 pods be bound in one transaction.
	MaxTxnOps       = 10000
	maxRequestBytes = 32 << 20
	// snapshotCount is small because raft keeps so many recent entries in memory, whatever their size.
	snapshotCount = 5000
	// DefaultQuota is how large the database may grow before etcd refuses writes.
	DefaultQuota = 8 << 30
	// retention is how long history is kept: a watcher may be away for so long, and at most twice that.
	retention = "5m"
	// progress lets the feed know that nothing has happened; it is what bookmarks are made of.
	progress = 5 * time.Second
	// A single member has nobody to wait for. Short ticks make it elect itself at once.
	tickMillis, electionMillis = 20, 100

	// memberName never changes: the data directory knows its member by it.
	memberName   = "trireme"
	startTimeout = 30 * time.Second
	// maxSocketPath is what the kernel takes for the path of a unix socket, less some room.
	maxSocketPath = 100
)

// Config of an embedded etcd.
type Config struct {
	// Dir holds its data.
	Dir string
	// ClientListen is a host:port at which clients of etcd's own are served without TLS; empty for none.
	ClientListen string
	// Quota in bytes of the database; DefaultQuota where 0.
	Quota int64
	// NoFsync trades durability for speed; for tests.
	NoFsync bool
	Logger  *slog.Logger
}

// Server is an etcd that has started.
type Server struct {
	etcd   *embed.Etcd
	client *clientv3.Client
	socket string // to remove, where it lies outside of Dir
}

// Start starts etcd and waits until it serves.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	s := &Server{}
	conf, err := s.configure(cfg)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	if s.etcd, err = embed.StartEtcd(conf); err != nil {
		s.removeSocket()
		return nil, fmt.Errorf("embedded etcd in %s: %w", cfg.Dir, err)
	}
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err = <-s.etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout.C:
		err = fmt.Errorf("not ready after %s", startTimeout)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("embedded etcd in %s: %w", cfg.Dir, err)
	}
	s.client = v3client.New(s.etcd.Server)
	return s, nil
}

func (s *Server) configure(cfg Config) (*embed.Config, error) {
	conf := embed.NewConfig()
	conf.Name = memberName
	conf.Dir = cfg.Dir
	conf.UnsafeNoFsync = cfg.NoFsync
	conf.MaxTxnOps = MaxTxnOps
	conf.MaxRequestBytes = maxRequestBytes
	conf.SnapshotCount = snapshotCount
	conf.SnapshotCatchUpEntries = snapshotCount
	conf.QuotaBackendBytes = cmp.Or(cfg.Quota, DefaultQuota)
	conf.AutoCompactionMode = "periodic"
	conf.AutoCompactionRetention = retention
	conf.WatchProgressNotifyInterval = progress
	conf.TickMs, conf.ElectionMs = tickMillis, electionMillis
	conf.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(cfg.Logger))

	socket, err := s.peerSocket(cfg.Dir)
	if err != nil {
		return nil, err
	}
	peer := url.URL{Scheme: "unix", Path: socket}
	conf.ListenPeerUrls = []url.URL{peer}
	conf.AdvertisePeerUrls = []url.URL{peer}
	conf.ListenClientUrls, conf.AdvertiseClientUrls = nil, nil
	if cfg.ClientListen != "" {
		conf.ListenClientUrls = []url.URL{{Scheme: "http", Host: cfg.ClientListen}}
		conf.AdvertiseClientUrls = conf.ListenClientUrls
	}
	conf.InitialCluster = conf.Name + "=" + peer.String()
	return conf, nil
}

// peerSocket returns where the peer listener goes: into the data directory, unless its path is too long for a socket.
func (s *Server) peerSocket(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if path := filepath.Join(abs, "peer.sock"); len(path) <= maxSocketPath {
		return path, nil
	}
	if s.socket, err = os.MkdirTemp("", "trireme-etcd-"); err != nil {
		return "", err
	}
	return filepath.Join(s.socket, "peer.sock"), nil
}

func (s *Server) removeSocket() {
	if s.socket != "" {
		_ = os.RemoveAll(s.socket) // a leftover in the temporary directory harms nobody
	}
}

// Client calls this etcd without a network. It is closed with the server.
func (s *Server) Client() *clientv3.Client { return s.client }

// ClientAddr is where clients of etcd's own are served; nil where they are not.
func (s *Server) ClientAddr() net.Addr {
	if len(s.etcd.Clients) == 0 {
		return nil
	}
	return s.etcd.Clients[0].Addr()
}

// Defragment gives the free space of the database file back to the disk. Reads and writes wait meanwhile.
func (s *Server) Defragment() error { return s.etcd.Server.Backend().Defrag() }

// Run waits until ctx ends, or etcd fails, and returns why.
func (s *Server) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.etcd.Err():
		return fmt.Errorf("embedded etcd: %w", err)
	case <-s.etcd.Server.StopNotify():
		return fmt.Errorf("embedded etcd stopped by itself")
	}
}

// Close stops etcd and waits for it.
func (s *Server) Close() {
	if s.client != nil {
		_ = s.client.Close() // its connection is a function call
	}
	s.etcd.Close()
	s.removeSocket()
}
