package controller

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"
)

const (
	leaseName = "trireme-controller"
	// defaultClusterCIDR has room for 16,384 nodes of a /24 each.
	defaultClusterCIDR = "10.64.0.0/10"
	defaultNodeMask    = 24
)

// Config is what an operator sets.
type Config struct {
	// APIServer is the gateway's address: unix:///path or host:port. Required.
	APIServer string
	// CertFile, KeyFile and CAFile identify the controllers to the gateway, and to callers where they listen on TCP.
	CertFile, KeyFile, CAFile string
	// Insecure speaks TCP without TLS.
	Insecure bool
	// Listen is a host:port for health and reflection; empty for none.
	Listen string
	// Socket is a unix socket for the same; empty for none.
	Socket string
	// LeaderElect has only the holder of the lease kube-system/trireme-controller act.
	LeaderElect bool
	// Identity in the lease, unique among controllers; made from the host's name where empty.
	Identity string
	// ClusterCIDR is divided among nodes, NodeMask bits to each.
	ClusterCIDR string
	NodeMask    int
}

// NewConfig returns the defaults.
func NewConfig() Config {
	return Config{LeaderElect: true, ClusterCIDR: defaultClusterCIDR, NodeMask: defaultNodeMask}
}

// AddFlags registers the flags of all fields.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.APIServer, "apiserver", c.APIServer, "`address` of the gateway: unix:///path or host:port")
	fs.StringVar(&c.CertFile, "cert", c.CertFile, "`file` with the controllers' certificate")
	fs.StringVar(&c.KeyFile, "key", c.KeyFile, "`file` with its key")
	fs.StringVar(&c.CAFile, "ca", c.CAFile, "`file` with the cluster's CA")
	fs.BoolVar(&c.Insecure, "insecure", c.Insecure, "speak TCP without TLS")
	fs.StringVar(&c.Listen, "listen", c.Listen, "`host:port` for health and reflection")
	fs.StringVar(&c.Socket, "socket", c.Socket, "unix `socket` for health and reflection")
	fs.BoolVar(&c.LeaderElect, "leader-elect", c.LeaderElect, "act only while holding the lease kube-system/"+leaseName)
	fs.StringVar(&c.Identity, "identity", c.Identity, "`name` in the lease; made from the host's name by default")
	fs.StringVar(&c.ClusterCIDR, "cluster-cidr", c.ClusterCIDR, "`range` of addresses that pods get")
	fs.IntVar(&c.NodeMask, "node-cidr-mask-size", c.NodeMask, "`bits` of the mask of each node's part of the range")
}

// Validate names all that is wrong.
func (c *Config) Validate() error {
	var errs []error
	if c.APIServer == "" {
		errs = append(errs, errors.New("--apiserver: an address is needed"))
	}
	if _, err := netip.ParsePrefix(c.ClusterCIDR); err != nil {
		errs = append(errs, fmt.Errorf("--cluster-cidr: %w", err))
	}
	return errors.Join(errs...)
}
