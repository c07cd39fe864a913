package up

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/kit/pki"
)

const (
	serviceGrace = 10 * time.Second
	// agentGrace is longer than most pods' own grace periods.
	agentGrace    = time.Minute
	leftoverGrace = agentGrace
)

// plan checks the machine, ends what an earlier `up` left behind, issues certificates and decides how each service is
// started.
func (c *cluster) plan(ctx context.Context) error {
	var runtimeDir string
	if c.cfg.Simulate == 0 {
		missing := lacksForContainers(ctx, c.exe, c.layout.dir)
		switch {
		case c.cfg.Containerd == "":
			dir, lacks := findRuntime(c.cfg.RuntimeBin, c.exe, os.Getenv("PATH"))
			runtimeDir, missing = dir, append(missing, lacks...)
		case !isSocket(c.cfg.Containerd):
			missing = append(missing, fmt.Sprintf("%s (--containerd-socket) is no socket: does containerd run?", c.cfg.Containerd))
		}
		if len(missing) > 0 {
			return &missingError{missing}
		}
	}
	if err := stopLeftovers(ctx, c.layout, leftoverGrace, c.progress.step); err != nil {
		return err
	}
	gateway, err := claim("--listen", c.cfg.Listen)
	if err != nil {
		return err
	}
	agent, err := claim("--node-listen", c.cfg.NodeListen)
	if err != nil {
		return err
	}
	if c.nodes, err = nodeNames(c.cfg.Simulate); err != nil {
		return err
	}
	gpus := realGPUs("/proc/driver/nvidia/gpus")
	if err := c.layout.fits(pluginDirs(c.layout, c.nodes)); err != nil {
		return err
	}
	c.gpus = gpusInWords(c.cfg, gpus)
	certs, err := issue(c.layout, c.nodes)
	if err != nil {
		return err
	}
	c.specs = specs(c.cfg, c.layout, c.nodes, certs, addresses{gateway: gateway, agent: agent}, runtimeDir, c.cfg.Simulate == 0 && gpus > 0)
	return writeContext(c.layout, certs["admin"])
}

// nodeNames are sim-0 and so on, or this machine's name.
func nodeNames(simulate int) ([]string, error) {
	if simulate == 0 {
		host, err := os.Hostname()
		return []string{nodeName(host)}, err
	}
	names := make([]string, simulate)
	for i := range names {
		names[i] = "sim-" + strconv.Itoa(i)
	}
	return names, nil
}

func pluginDirs(l layout, nodes []string) []string {
	dirs := make([]string, len(nodes))
	for i, n := range nodes {
		dirs[i] = l.pluginDir(n)
	}
	return dirs
}

// realGPUs counts what the NVIDIA driver shows.
func realGPUs(dir string) int {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	return len(entries)
}

func gpusInWords(cfg Config, real int) string {
	switch {
	case cfg.Simulate > 0:
		return fmt.Sprintf("%d simulated GPUs each", cfg.GPUs)
	case real > 0:
		return fmt.Sprintf("%d NVIDIA GPUs", real)
	}
	return fmt.Sprintf("%d simulated GPUs, for want of real ones", cfg.GPUs)
}

// issue makes sure that every component has its certificate. The gateway's and the agents' name every way to reach
// this machine.
func issue(l layout, nodes []string) (map[string]pki.Files, error) {
	ca, err := pki.Open(l.pki())
	if err != nil {
		return nil, err
	}
	names, ips := reachable()
	ids := map[string]pki.Identity{
		"apiserver":  {CommonName: "system:trireme-apiserver", DNSNames: names, IPs: ips},
		"scheduler":  {CommonName: "system:trireme-scheduler"},
		"controller": {CommonName: "system:trireme-controller"},
		"admin":      {CommonName: "admin", Organizations: []string{"system:masters"}},
	}
	for _, n := range nodes {
		ids["node-"+n] = pki.Identity{
			CommonName: "system:node:" + n, Organizations: []string{"system:nodes"},
			DNSNames: append([]string{n}, names...), IPs: ips,
		}
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
func writeContext(l layout, admin pki.Files) error {
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
	cfg.PutCluster(name, contexts.Context{
		Server: "unix://" + l.socket("apiserver"), StateDir: l.dir,
		CertFile: admin.Cert, KeyFile: admin.Key, CAFile: admin.CA,
	})
	return cfg.Save(path)
}
