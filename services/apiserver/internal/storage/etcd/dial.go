package etcd

import (
	"fmt"
	"math"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// ClientConfig says how to reach an etcd that runs elsewhere.
type ClientConfig struct {
	Endpoints []string
	// CertFile, KeyFile and CAFile; all empty for no TLS.
	CertFile, KeyFile, CAFile string
}

// Dial returns a client, which connects when it is first used. The caller closes it.
func Dial(cfg ClientConfig) (*clientv3.Client, error) {
	conf := clientv3.Config{
		Endpoints:            cfg.Endpoints,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		// A gang's transaction and a page of a list go beyond gRPC's defaults; etcd has limits of its own.
		MaxCallSendMsgSize: math.MaxInt32,
		MaxCallRecvMsgSize: math.MaxInt32,
		DialOptions:        []grpc.DialOption{grpc.WithNoProxy()},
		Logger:             zap.NewNop(), // errors come back from calls; its own log repeats them
	}
	if cfg.CertFile != "" {
		tls, err := transport.TLSInfo{CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, TrustedCAFile: cfg.CAFile}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("etcd: %w", err)
		}
		conf.TLS = tls
	}
	client, err := clientv3.New(conf)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return client, nil
}
