package apiserver

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Config is what an operator sets.
type Config struct {
	// EtcdEndpoints of an etcd that runs elsewhere: host:port or URL. Empty means that an etcd is run in this process,
	// with its data in DataDir.
	EtcdEndpoints []string
	// EtcdCertFile, EtcdKeyFile and EtcdCAFile identify the gateway to that etcd; all empty for none.
	EtcdCertFile, EtcdKeyFile, EtcdCAFile string
	// DataDir of the embedded etcd.
	DataDir string
	// EtcdQuota in bytes is how large the database of the embedded etcd may grow; 8 GiB where 0.
	EtcdQuota int64

	// Socket is the unix socket for the machine's administrator: whoever may open it is admin. Its mode is 0600.
	Socket string
	// Listen is a host:port for everybody else, with mutual TLS.
	Listen string
	// CertFile, KeyFile and CAFile identify the gateway to its callers and to node agents; CAFile signs theirs.
	CertFile, KeyFile, CAFile string
	// CAKeyFile is the key of CAFile's CA. With it the gateway gives machines that join their certificates.
	CAKeyFile string
	// EventTTL is how long events are kept after they were last written; an hour where 0.
	EventTTL time.Duration
	// Insecure serves TCP, and reaches node agents, without TLS: whoever can connect may do anything. Never outside of
	// experiments.
	Insecure bool

	// AuditLog is the file to which calls are told as Kubernetes' audit events; "-" is standard output, empty is nowhere.
	AuditLog string
	// AuditPolicy is a file of kind Policy, audit.k8s.io/v1, that says which; without it, all writes and what is refused.
	AuditPolicy string
	// AuditMaxSize in MiB after which a new file is begun; 100 where 0. AuditMaxFiles old ones are kept; all where 0.
	AuditMaxSize, AuditMaxFiles int
}

// AddFlags registers the flags of all fields.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.EtcdEndpoints, "etcd-endpoints", c.EtcdEndpoints, "`addresses` of etcd, comma-separated; without any, one is run in this process")
	fs.StringVar(&c.EtcdCertFile, "etcd-cert", c.EtcdCertFile, "`file` with the certificate for etcd")
	fs.StringVar(&c.EtcdKeyFile, "etcd-key", c.EtcdKeyFile, "`file` with its key")
	fs.StringVar(&c.EtcdCAFile, "etcd-ca", c.EtcdCAFile, "`file` with the CA of etcd")
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "`folder` of the embedded etcd")
	fs.Int64Var(&c.EtcdQuota, "etcd-quota", c.EtcdQuota, "`bytes` to which the database of the embedded etcd may grow, 8 GiB by default; when it is full, writes are refused")
	fs.StringVar(&c.Socket, "socket", c.Socket, "unix `socket` for the administrator")
	fs.StringVar(&c.Listen, "listen", c.Listen, "`host:port` to serve with mutual TLS")
	fs.StringVar(&c.CertFile, "cert", c.CertFile, "`file` with the gateway's certificate")
	fs.StringVar(&c.KeyFile, "key", c.KeyFile, "`file` with its key")
	fs.StringVar(&c.CAFile, "ca", c.CAFile, "`file` with the cluster's CA")
	fs.StringVar(&c.CAKeyFile, "ca-key", c.CAKeyFile, "`file` with the CA's key, to sign the certificates of nodes that join")
	fs.StringVar(&c.AuditLog, "audit-log", c.AuditLog, "`file` for Kubernetes' audit events, - for standard output")
	fs.StringVar(&c.AuditPolicy, "audit-policy", c.AuditPolicy, "`file` of kind Policy (audit.k8s.io/v1) that says which calls are told of; without it, all writes and what is refused")
	fs.IntVar(&c.AuditMaxSize, "audit-max-size", c.AuditMaxSize, "`MiB` after which a new audit log is begun, 100 by default")
	fs.IntVar(&c.AuditMaxFiles, "audit-max-files", c.AuditMaxFiles, "`number` of old audit logs that are kept, all by default")
	fs.DurationVar(&c.EventTTL, "event-ttl", c.EventTTL, "`time` for which events are kept after they were last written, 1h by default")
	fs.BoolVar(&c.Insecure, "insecure", c.Insecure, "serve TCP without TLS: whoever can connect may do anything")
}

// Validate names all that is wrong.
func (c *Config) Validate() error {
	var errs []error
	switch {
	case len(c.EtcdEndpoints) == 0 && c.DataDir == "":
		errs = append(errs, errors.New("--data-dir or --etcd-endpoints: one is needed"))
	case len(c.EtcdEndpoints) > 0 && c.DataDir != "":
		errs = append(errs, errors.New("--data-dir and --etcd-endpoints exclude each other"))
	}
	if c.EtcdQuota < 0 {
		errs = append(errs, fmt.Errorf("--etcd-quota %d: want 0 or more", c.EtcdQuota))
	}
	etcdTLS := []string{c.EtcdCertFile, c.EtcdKeyFile, c.EtcdCAFile}
	if some(etcdTLS) && !all(etcdTLS) {
		errs = append(errs, errors.New("--etcd-cert, --etcd-key and --etcd-ca belong together"))
	}
	if c.EventTTL != 0 && c.EventTTL < time.Second {
		errs = append(errs, fmt.Errorf("--event-ttl %s: want a second or more", c.EventTTL))
	}
	if c.Socket == "" && c.Listen == "" {
		errs = append(errs, errors.New("--socket or --listen: one is needed"))
	}
	if c.Listen != "" && !c.Insecure && !all([]string{c.CertFile, c.KeyFile, c.CAFile}) {
		errs = append(errs, errors.New("--listen needs --cert, --key and --ca (or --insecure)"))
	}
	if c.AuditLog == "" && (c.AuditPolicy != "" || c.AuditMaxSize != 0 || c.AuditMaxFiles != 0) {
		errs = append(errs, errors.New("--audit-policy, --audit-max-size and --audit-max-files need --audit-log, the file to write to"))
	}
	if c.AuditMaxSize < 0 || c.AuditMaxFiles < 0 {
		errs = append(errs, errors.New("--audit-max-size and --audit-max-files: want 0 or more"))
	}
	if c.CAKeyFile != "" && c.CAFile == "" {
		errs = append(errs, errors.New("--ca-key needs --ca, the certificate that it belongs to"))
	}
	return errors.Join(errs...)
}

func some(files []string) bool {
	for _, f := range files {
		if f != "" {
			return true
		}
	}
	return false
}

func all(files []string) bool {
	for _, f := range files {
		if f == "" {
			return false
		}
	}
	return true
}
