// Package local runs what a benchmark drives: an etcd, a gateway and a scheduler, with mutual TLS and fsync on, as processes
// of their own that end with this one.
package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
)

// Binaries of the processes.
type Binaries struct {
	// Etcd and Gateway are needed.
	Etcd, Gateway string
	// Scheduler is run where it is named.
	Scheduler string
}

// Cluster is what runs.
type Cluster struct {
	// Etcd, Gateway and Scheduler are the processes; Scheduler is nil where none was asked for.
	Etcd, Gateway, Scheduler *Process
	// Client is how to reach the gateway as its administrator.
	Client rpc.ClientConfig

	dir string
}

// Start runs the processes and waits until the gateway serves.
func Start(ctx context.Context, bin Binaries) (c *Cluster, err error) {
	c = &Cluster{}
	if c.dir, err = os.MkdirTemp("", "trireme-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	clientURL, peerURL := "http://"+ports[0], "http://"+ports[1]
	if c.Etcd, err = run(bin.Etcd, "--data-dir="+filepath.Join(c.dir, "etcd"), "--name=bench",
		"--listen-client-urls="+clientURL, "--advertise-client-urls="+clientURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=bench="+peerURL,
		"--max-txn-ops=10000", "--max-request-bytes=33554432", "--snapshot-count=5000", "--log-level=error"); err != nil {
		return nil, err
	}
	ca, err := pki.Open(c.dir)
	if err != nil {
		return nil, err
	}
	issue := func(name string, id pki.Identity) (pki.Files, error) { return ca.Issue(c.dir, name, id) }
	server, err := issue("apiserver", pki.Identity{
		CommonName: "system:trireme-apiserver", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		return nil, err
	}
	admin, err := issue("admin", pki.Identity{CommonName: "admin", Organizations: []string{"system:masters"}})
	if err != nil {
		return nil, err
	}
	if c.Gateway, err = run(bin.Gateway, "--etcd-endpoints="+ports[0], "--listen="+ports[2],
		"--cert="+server.Cert, "--key="+server.Key, "--ca="+server.CA); err != nil {
		return nil, err
	}
	c.Client = rpc.ClientConfig{Address: ports[2], CertFile: admin.Cert, KeyFile: admin.Key, CAFile: admin.CA}
	if err := c.waitServing(ctx); err != nil || bin.Scheduler == "" {
		return c, err
	}
	self, err := issue("scheduler", pki.Identity{CommonName: "system:trireme-scheduler"})
	if err != nil {
		return nil, err
	}
	c.Scheduler, err = run(bin.Scheduler, "--apiserver="+ports[2], "--cert="+self.Cert, "--key="+self.Key, "--ca="+self.CA, "--log-level=warn")
	return c, err
}

func (c *Cluster) waitServing(ctx context.Context) error {
	conn, err := rpc.Dial(c.Client)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return errors.Join(rpc.WaitServing(ctx, conn), conn.Close())
}

// Stop ends the processes and removes what they wrote.
func (c *Cluster) Stop() {
	for _, p := range []*Process{c.Scheduler, c.Gateway, c.Etcd} {
		if p != nil {
			p.stop()
		}
	}
	_ = os.RemoveAll(c.dir)
}

func freePorts(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// Process of a cluster.
type Process struct{ cmd *exec.Cmd }

// run starts a process that ends with this one.
func run(binary string, args ...string) (*Process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return &Process{cmd}, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func (p *Process) stop() {
	// It is thrown away with all it holds.
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
