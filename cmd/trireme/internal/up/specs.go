package up

import (
	"fmt"
	"regexp"
	"strings"

	"trireme.dev/kit/pki"
)

// upIdentity is the name in the leases of a cluster that up runs.
const upIdentity = "trireme-up"

// addresses are where the gateway and the node agent listen.
type addresses struct{ gateway, agent string }

// specs decides how each service is started. It is pure: the same input gives the same command lines.
func specs(cfg Config, l layout, nodes []string, certs map[string]pki.Files, at addresses, runtimeDir string, nvidia bool) []spec {
	component := func(name string) spec {
		return spec{service: name, grace: serviceGrace, address: "unix://" + l.socket(name), args: append(
			[]string{"--socket=" + l.socket(name), "--apiserver=" + reach(at.gateway)}, tls(certs[name])...)}
	}
	apiserver := spec{service: "apiserver", grace: serviceGrace, address: at.gateway, args: append([]string{
		"--socket=" + l.socket("apiserver"), "--listen=" + at.gateway, "--data-dir=" + l.path("etcd"),
	}, tls(certs["apiserver"])...)}

	deviced := spec{service: "deviced", grace: serviceGrace, address: "unix://" + l.socket("deviced"), args: []string{"--socket=" + l.socket("deviced")}}
	for _, n := range nodes {
		deviced.args = append(deviced.args, "--plugin-dir="+n+"="+l.pluginDir(n))
	}
	if nvidia {
		deviced.args = append(deviced.args, "--nvidia")
	} else {
		deviced.args = append(deviced.args, fmt.Sprintf("--simulated-gpus=%d", cfg.GPUs))
	}
	scheduler := component("scheduler")
	// There is one, so a successor of one that was killed need not wait for its lease to run out.
	scheduler.args = append(scheduler.args, "--identity="+upIdentity)
	return []spec{apiserver, scheduler, component("controller"), deviced}
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
