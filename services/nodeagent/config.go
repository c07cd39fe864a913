package nodeagent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"trireme.dev/client/quantity"
	"trireme.dev/kit/rpc"
)

const (
	// kubeletPluginDir is where device plugins look for the agent.
	kubeletPluginDir = "/var/lib/kubelet/device-plugins"
	simulatedPrefix  = "sim"
)

// Config is what an operator sets.
type Config struct {
	// Gateway is how to reach the gateway; the certificate is the node's, and is also shown to callers on Listen.
	Gateway rpc.ClientConfig
	// RenewCertificate has the gateway sign the next certificate before this one ends. The certificate and its key must
	// then be one file, which is replaced.
	RenewCertificate bool
	// Listen is a host:port at which the gateway reaches the agent; without it there are no logs and no exec.
	Listen string
	// Socket is the agent's own unix socket; empty for none.
	Socket string
	// NodeName is the node's name, the host's where empty. With Simulate it is the prefix of the nodes' names: sim.
	NodeName string
	// NodeIP is the node's address; where empty, the first one of the host that others can reach.
	NodeIP string
	// StateDir keeps all that must outlive the agent. Required.
	StateDir string
	// RunDir keeps what ends with the machine: /run/trireme.
	RunDir string
	// PluginDir is where device plugins meet the agent. Where empty it is Kubernetes' own, unless something else
	// serves there, and a folder of the node's below StateDir when the node is simulated.
	PluginDir string
	// ContainerdSocket is a containerd to use. RuntimeBin is a folder with containerd, its shim and runc: the agent
	// starts a containerd of its own and keeps it running. One of the two is required, unless Simulate is set.
	ContainerdSocket, RuntimeBin string
	// Simulate is how many simulated nodes to be instead of this one.
	Simulate int
	// SimulatedCPU and SimulatedMemory are what each of them has: 64 and 256Gi.
	SimulatedCPU, SimulatedMemory string
	// Labels that the node gets.
	Labels map[string]string
}

// AddFlags registers the flags of all fields.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Gateway.AddFlags(fs)
	fs.BoolVar(&c.RenewCertificate, "renew-certificate", c.RenewCertificate, "renew the certificate before it ends; --cert and --key must name one file with both")
	fs.StringVar(&c.Listen, "listen", c.Listen, "`host:port` at which the gateway reaches the agent")
	fs.StringVar(&c.Socket, "socket", c.Socket, "the agent's own unix `socket`")
	fs.StringVar(&c.NodeName, "node-name", c.NodeName, "`name` of the node, the host's by default; with --simulate the prefix of names, sim by default")
	fs.StringVar(&c.NodeIP, "node-ip", c.NodeIP, "`address` by which other nodes and the gateway reach this one, where it has several; the host's first by default")
	fs.StringVar(&c.StateDir, "state-dir", c.StateDir, "`folder` for all that must outlive the agent")
	fs.StringVar(&c.RunDir, "run-dir", c.RunDir, "`folder` for what ends with the machine, /run/trireme by default")
	fs.StringVar(&c.PluginDir, "plugin-dir", c.PluginDir, "`folder` where device plugins meet the agent")
	fs.StringVar(&c.ContainerdSocket, "containerd", c.ContainerdSocket, "`socket` of a running containerd to use")
	fs.StringVar(&c.RuntimeBin, "runtime-bin", c.RuntimeBin, "`folder` with containerd, its shim and runc, to start and keep running")
	fs.IntVar(&c.Simulate, "simulate", c.Simulate, "be `N` simulated nodes instead of this one")
	fs.StringVar(&c.SimulatedCPU, "simulated-cpu", c.SimulatedCPU, "`cpus` of each simulated node, 64 by default")
	fs.StringVar(&c.SimulatedMemory, "simulated-memory", c.SimulatedMemory, "`memory` of each simulated node, 256Gi by default")
	fs.StringToStringVar(&c.Labels, "node-labels", c.Labels, "`key=value,...` labels that the node gets")
}

// Validate names all that is wrong.
func (c *Config) Validate() error {
	var errs []error
	if err := c.Gateway.Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.RenewCertificate && (c.Gateway.CertFile == "" || c.Gateway.CertFile != c.Gateway.KeyFile) {
		errs = append(errs, errors.New("--renew-certificate: --cert and --key must name one file that holds both"))
	}
	if !filepath.IsAbs(c.StateDir) {
		errs = append(errs, fmt.Errorf("--state-dir %q: want an absolute path", c.StateDir))
	}
	if c.Simulate < 0 {
		errs = append(errs, fmt.Errorf("--simulate %d: want 0 or more", c.Simulate))
	}
	if c.Simulate == 0 && (c.ContainerdSocket == "") == (c.RuntimeBin == "") {
		errs = append(errs, errors.New("--containerd, --runtime-bin: want one of them, or --simulate"))
	}
	if c.NodeIP != "" && net.ParseIP(c.NodeIP) == nil {
		errs = append(errs, fmt.Errorf("--node-ip %q: want an IP address", c.NodeIP))
	}
	for flag, value := range map[string]string{"--simulated-cpu": c.SimulatedCPU, "--simulated-memory": c.SimulatedMemory} {
		if value == "" {
			continue
		}
		if q, err := quantity.Parse(value); err != nil || q.Sign() <= 0 {
			errs = append(errs, fmt.Errorf("%s %q: want a quantity greater than 0", flag, value))
		}
	}
	return errors.Join(errs...)
}

// withDefaults fills in what the operator left open.
func (c Config) withDefaults() (Config, error) {
	if c.RunDir == "" {
		c.RunDir = "/run/trireme"
	}
	if c.SimulatedCPU == "" {
		c.SimulatedCPU = "64"
	}
	if c.SimulatedMemory == "" {
		c.SimulatedMemory = "256Gi"
	}
	if c.NodeName == "" && c.Simulate > 0 {
		c.NodeName = simulatedPrefix
	}
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("node name: %w", err)
		}
		c.NodeName = strings.ToLower(host)
	}
	if c.NodeIP == "" {
		ip, err := reachableIP(c.Simulate > 0)
		if err != nil {
			return c, fmt.Errorf("node address: %w", err)
		}
		c.NodeIP = ip
	}
	return c, nil
}

// reachableIP is the host's first address that others can reach; simulated nodes are reached on the same machine.
func reachableIP(simulated bool) (string, error) {
	const loopback = "127.0.0.1"
	if simulated {
		return loopback, nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, four := range []bool{true, false} {
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && (n.IP.To4() != nil) == four {
				return n.IP.String(), nil
			}
		}
	}
	return loopback, nil
}

// nodeNames of all nodes that the agent is.
func (c Config) nodeNames() []string {
	if c.Simulate == 0 {
		return []string{c.NodeName}
	}
	names := make([]string, c.Simulate)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", c.NodeName, i)
	}
	return names
}

// nodeDir keeps what belongs to one node.
func (c Config) nodeDir(node string) string { return filepath.Join(c.StateDir, "nodes", node) }
