package controller

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"trireme.dev/kit/rpc"
)

const (
	leaseName = "trireme-controller"
	// defaultClusterCIDR has room for 16,384 nodes of a /24 each.
	defaultClusterCIDR = "10.64.0.0/10"
	defaultNodeMask    = 24
)

// Config is what an operator sets.
type Config struct {
	// Gateway is how to reach the gateway; its certificate is also the one that is shown to callers on Listen.
	Gateway rpc.ClientConfig
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
	c.Gateway.AddFlags(fs)
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
	if err := c.Gateway.Validate(); err != nil {
		errs = append(errs, err)
	}
	if _, err := netip.ParsePrefix(c.ClusterCIDR); err != nil {
		errs = append(errs, fmt.Errorf("--cluster-cidr: %w", err))
	}
	return errors.Join(errs...)
}
