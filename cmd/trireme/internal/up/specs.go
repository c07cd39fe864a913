package up

import (
	"fmt"
	"hash/fnv"
	"net"
	"regexp"
	"strings"

	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	"trireme.dev/services/deviced"
	"trireme.dev/services/nodeagent"
)

// upIdentity is the name in the leases of a cluster that up runs.
const upIdentity = "trireme-up"

// specs decides how each service is started. It is pure: the same input gives the same command lines.
func specs(cfg Config, l layout, certs map[string]pki.Files, gateway string, agent nodeagent.Config, devices deviced.Config) []spec {
	component := func(name string) spec {
		args := append([]string{"--socket=" + l.socket(name), "--apiserver=" + reach(gateway)}, tls(certs[name])...)
		// There is one of each, so a successor of one that was killed need not wait for its lease to run out.
		return spec{service: name, grace: serviceGrace, address: "unix://" + l.socket(name), args: append(args, "--identity="+upIdentity)}
	}
	return append([]spec{
		{service: "apiserver", grace: serviceGrace, address: gateway, args: append([]string{
			"--socket=" + l.socket("apiserver"), "--listen=" + gateway, "--data-dir=" + l.path("etcd"),
			"--ca-key=" + l.path("pki", "ca.key"),
		}, append(tls(certs["apiserver"]), gatewayFlags(cfg)...)...)},
		component("scheduler"),
		component("controller"),
	}, nodeSpecs(agent, devices)...)
}

// gatewayFlags are those that the user gave up for the gateway. Services run in a folder of their own, so paths are whole.
func gatewayFlags(cfg Config) []string {
	var args []string
	if cfg.AuditLog != "" {
		args = append(args, "--audit-log="+cfg.AuditLog)
	}
	if cfg.AuditPolicy != "" {
		args = append(args, "--audit-policy="+cfg.AuditPolicy)
	}
	if cfg.EventTTL != 0 {
		args = append(args, "--event-ttl="+cfg.EventTTL.String())
	}
	return args
}

// nodeSpecs are the services of a node.
func nodeSpecs(agent nodeagent.Config, devices deviced.Config) []spec {
	return []spec{
		{service: "nodeagent", grace: serviceGrace, address: agent.Listen, args: agentArgs(agent)},
		{service: "deviced", grace: serviceGrace, address: "unix://" + devices.Socket, args: devicedArgs(devices)},
	}
}

// agentConfig is how the node agent runs; runtimeDir and containerd are empty where nodes are simulated.
func agentConfig(cfg Config, l layout, certs pki.Files, gateway, listen, node, runtimeDir string) nodeagent.Config {
	c := nodeagent.Config{
		Gateway: rpc.ClientConfig{Address: reach(gateway), CertFile: certs.Cert, KeyFile: certs.Key, CAFile: certs.CA},
		Socket:  l.socket("nodeagent"), Listen: listen, NodeName: node, NodeIP: cfg.NodeIP,
		StateDir: l.dir, RunDir: runDir(l), Simulate: cfg.Simulate,
	}
	if c.NodeIP == "" {
		c.NodeIP = hostOf(listen)
	}
	if cfg.Simulate == 0 {
		c.RuntimeBin, c.ContainerdSocket = runtimeDir, cfg.Containerd
	}
	return c
}

func agentArgs(c nodeagent.Config) []string {
	args := append([]string{
		"--apiserver=" + c.Gateway.Address, "--socket=" + c.Socket, "--listen=" + c.Listen,
		"--node-name=" + c.NodeName, "--state-dir=" + c.StateDir, "--run-dir=" + c.RunDir,
	}, tls(pki.Files{Cert: c.Gateway.CertFile, Key: c.Gateway.KeyFile, CA: c.Gateway.CAFile})...)
	for flag, value := range map[string]string{
		"--node-ip=": c.NodeIP, "--runtime-bin=": c.RuntimeBin, "--containerd=": c.ContainerdSocket, "--plugin-dir=": c.PluginDir,
	} {
		if value != "" {
			args = append(args, flag+value)
		}
	}
	if c.RenewCertificate {
		args = append(args, "--renew-certificate")
	}
	if c.Simulate > 0 {
		args = append(args, fmt.Sprintf("--simulate=%d", c.Simulate))
	}
	return args
}

func devicedArgs(c deviced.Config) []string {
	args := []string{"--socket=" + c.Socket}
	for _, d := range c.PluginDirs {
		args = append(args, "--plugin-dir="+d)
	}
	if c.NVIDIA {
		args = append(args, "--nvidia")
	}
	if c.SimulatedGPUs > 0 {
		args = append(args, fmt.Sprintf("--simulated-gpus=%d", c.SimulatedGPUs))
	}
	return args
}

// runDir is where the node agent keeps what ends with the machine: below /run, where a reboot empties it.
func runDir(l layout) string {
	if l.dir == rootStateDir {
		return "/run/trireme"
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(l.dir)) // it never fails
	return fmt.Sprintf("/run/trireme-%08x", h.Sum32())
}

// hostOf is the address in host:port, empty for all addresses.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		return ""
	}
	return host
}

func tls(f pki.Files) []string {
	return []string{"--cert=" + f.Cert, "--key=" + f.Key, "--ca=" + f.CA}
}

// reach is the address by which this machine reaches a listener of its own: one on all interfaces is reached over
// the loopback.
func reach(listen string) string {
	for _, all := range []string{"0.0.0.0:", "[::]:"} {
		if port, ok := strings.CutPrefix(listen, all); ok {
			return "127.0.0.1:" + port
		}
	}
	return listen
}

var notInNames = regexp.MustCompile(`[^a-z0-9.-]+`)

// nodeName makes a host's name one that an object may have.
func nodeName(host string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(host), "-"), "-.")
	if name == "" {
		return "node"
	}
	return name
}
