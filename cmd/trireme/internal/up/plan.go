package up

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/kit/pki"
	"trireme.dev/services/deviced"
)

const (
	serviceGrace = 10 * time.Second
	// kubeletPluginDir is where device plugins look for the node agent.
	kubeletPluginDir = "/var/lib/kubelet/device-plugins"
)

// plan checks the machine, ends what an earlier `up` left behind, issues certificates and decides how each service is
// started.
func (c *cluster) plan(ctx context.Context) error {
	runtimeDir, err := c.findContainers(ctx)
	if err != nil {
		return err
	}
	if err := stopLeftovers(ctx, c.layout, serviceGrace, c.progress.step); err != nil {
		return err
	}
	gateway, err := claim("--listen", c.cfg.Listen)
	if err != nil {
		return err
	}
	listen, err := claim("--node-listen", nodeListen(c.cfg))
	if err != nil {
		return err
	}
	prefix, err := nodePrefix(c.cfg.Simulate)
	if err != nil {
		return err
	}
	c.nodes = nodeNames(prefix, c.cfg.Simulate)
	certs, err := issue(c.layout, prefix, c.nodes)
	if err != nil {
		return err
	}
	c.gateway = gateway
	c.renew = func() error {
		_, err := issue(c.layout, prefix, c.nodes)
		return err
	}
	if err := c.planTraces(certs["apiserver"]); err != nil {
		return err
	}
	c.agent = agentConfig(c.cfg, c.layout, certs["nodeagent"], gateway, listen, prefix, runtimeDir)
	devices := deviced.Config{Socket: c.layout.socket("deviced")}
	if err := c.planDevices(&devices); err != nil {
		return err
	}
	// Where the last up stopped its pods, what is stored of them is old.
	if _, err := os.Stat(c.layout.agent()); errors.Is(err, fs.ErrNotExist) {
		c.podsSince = c.progress.start
	}
	if err := saveAgent(c.layout, c.agent); err != nil {
		return err
	}
	c.specs = specs(c.cfg, c.layout, certs, gateway, c.agent, devices)
	return writeContext(c.layout, certs["admin"], c.tracesAddress())
}

// findContainers makes sure that real containers can run here, if there are to be any, and returns the folder of the
// runtime; empty where nothing is to be started.
func (c *cluster) findContainers(ctx context.Context) (string, error) {
	if c.cfg.Simulate > 0 {
		return "", nil
	}
	runtimeDir, missing := "", lacksForContainers(ctx, c.exe, c.layout.dir)
	switch {
	case c.cfg.Containerd == "":
		dir, lacks := findRuntime(c.cfg.RuntimeBin, c.exe, os.Getenv("PATH"))
		runtimeDir, missing = dir, append(missing, lacks...)
	case !isSocket(c.cfg.Containerd):
		missing = append(missing, fmt.Sprintf("%s (--containerd-socket) is no socket: does containerd run?", c.cfg.Containerd))
	}
	if len(missing) > 0 {
		return "", &missingError{missing}
	}
	return runtimeDir, nil
}

// planDevices decides what deviced offers, and where the node agent meets it.
func (c *cluster) planDevices(d *deviced.Config) error {
	real := realGPUs("/proc/driver/nvidia/gpus")
	switch {
	case c.cfg.Simulate > 0:
		c.gpus = fmt.Sprintf("%d simulated GPUs each", c.cfg.GPUs)
		for _, n := range c.nodes {
			d.PluginDirs = append(d.PluginDirs, n+"="+c.layout.pluginDir(n))
		}
		d.SimulatedGPUs = c.cfg.GPUs
		return c.layout.fits(c.nodes)
	case real > 0:
		c.gpus = fmt.Sprintf("%d NVIDIA GPUs", real)
		d.NVIDIA = true
	default:
		c.gpus = fmt.Sprintf("%d simulated GPUs, for want of real ones", c.cfg.GPUs)
		d.SimulatedGPUs = c.cfg.GPUs
	}
	c.agent.PluginDir = kubeletPluginDir
	if inUse(filepath.Join(kubeletPluginDir, "kubelet.sock")) {
		c.agent.PluginDir = c.layout.pluginDir(c.nodes[0])
		c.progress.step("another program serves device plugins in %s: this cluster's belong in %s", kubeletPluginDir, c.agent.PluginDir)
	}
	d.PluginDirs = []string{c.agent.PluginDir}
	return c.layout.fits(c.nodes)
}

// inUse reports whether a process serves the socket.
func inUse(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// nodeListen is where the node agent listens unless the user says so: the gateway reaches a real node by the address
// that others see, simulated ones by the loopback.
func nodeListen(cfg Config) string {
	if cfg.NodeListen != "" {
		return cfg.NodeListen
	}
	host := "127.0.0.1"
	if _, ips := reachable(); cfg.Simulate == 0 {
		for _, ip := range ips {
			if ip.To4() != nil && !ip.IsLoopback() {
				host = ip.String()
				break
			}
		}
	}
	return net.JoinHostPort(host, "7444")
}

// nodePrefix is the name of this machine's node, or what the names of simulated ones begin with.
func nodePrefix(simulate int) (string, error) {
	if simulate > 0 {
		return "sim", nil
	}
	host, err := os.Hostname()
	return nodeName(host), err
}

// nodeNames are sim-0 and so on, or this machine's name.
func nodeNames(prefix string, simulate int) []string {
	if simulate == 0 {
		return []string{prefix}
	}
	names := make([]string, simulate)
	for i := range names {
		names[i] = prefix + "-" + strconv.Itoa(i)
	}
	return names
}

// realGPUs counts what the NVIDIA driver shows.
func realGPUs(dir string) int {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	return len(entries)
}

// issue makes sure that every component has its certificate. The gateway's and the agents' name every way to reach
// this machine.
func issue(l layout, prefix string, nodes []string) (map[string]pki.Files, error) {
	ca, err := pki.Open(l.pki())
	if err != nil {
		return nil, err
	}
	names, ips := reachable()
	ids := map[string]pki.Identity{
		"apiserver":  {CommonName: "system:trireme-apiserver", DNSNames: names, IPs: ips},
		"scheduler":  {CommonName: "system:trireme-scheduler"},
		"controller": {CommonName: "system:trireme-controller"},
		// The agent of simulated nodes is all of them.
		"nodeagent": {
			CommonName: "system:node:" + prefix, Organizations: []string{"system:nodes"},
			DNSNames: append(append([]string{}, nodes...), names...), IPs: ips,
		},
		"admin": {CommonName: "admin", Organizations: []string{"system:masters"}},
	}
	files := make(map[string]pki.Files, len(ids))
	for name, id := range ids {
		if files[name], err = ca.Issue(l.pki(), name, id); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func reachable() (names []string, ips []net.IP) {
	names = []string{"localhost", "trireme"}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	ips = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return names, ips
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			ips = append(ips, n.IP)
		}
	}
	return names, ips
}

// writeContext enters the cluster in the CLI's configuration. The admin socket needs no certificate and works
// whatever the ports are.
func writeContext(l layout, admin pki.Files, traces string) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	cfg, err := contexts.Load(path)
	if err != nil {
		return err
	}
	name := "trireme"
	if d, err := defaultStateDir(); err == nil && d != l.dir {
		name = filepath.Base(l.dir)
	}
	for _, known := range cfg.Contexts {
		// Where nothing is kept here, a Jaeger that the user wrote there stays.
		if traces == "" && known.StateDir == l.dir && !strings.HasPrefix(known.Traces, "unix://") {
			traces = known.Traces
		}
	}
	cfg.PutCluster(name, contexts.Context{
		Server: "unix://" + l.socket("apiserver"), StateDir: l.dir,
		CertFile: admin.Cert, KeyFile: admin.Key, CAFile: admin.CA, Traces: traces,
	})
	return cfg.Save(path)
}
