package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
)

// local is an etcd and a gateway of our own.
type local struct {
	dir           string
	etcd, gateway *exec.Cmd
	client        rpc.ClientConfig
}

func startLocal(ctx context.Context, c config) (l *local, err error) {
	l = &local{}
	if l.dir, err = os.MkdirTemp("", "trireme-bench-api-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.stop()
		}
	}()
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	clientURL, peerURL := "http://"+ports[0], "http://"+ports[1]
	l.etcd = exec.Command(c.etcd, "--data-dir="+filepath.Join(l.dir, "etcd"), "--name=bench",
		"--listen-client-urls="+clientURL, "--advertise-client-urls="+clientURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=bench="+peerURL,
		"--max-txn-ops=10000", "--max-request-bytes=33554432", "--snapshot-count=5000", "--log-level=error")
	if err := start(l.etcd); err != nil {
		return nil, err
	}
	ca, err := pki.Open(l.dir)
	if err != nil {
		return nil, err
	}
	server, err := ca.Issue(l.dir, "apiserver", pki.Identity{CommonName: "system:trireme-apiserver", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, err
	}
	admin, err := ca.Issue(l.dir, "admin", pki.Identity{CommonName: "admin", Organizations: []string{"system:masters"}})
	if err != nil {
		return nil, err
	}
	l.gateway = exec.Command(c.gateway, "--etcd-endpoints="+ports[0], "--listen="+ports[2],
		"--cert="+server.Cert, "--key="+server.Key, "--ca="+server.CA)
	if err := start(l.gateway); err != nil {
		return nil, err
	}
	l.client = rpc.ClientConfig{Address: ports[2], CertFile: admin.Cert, KeyFile: admin.Key, CAFile: admin.CA}
	conn, err := rpc.Dial(l.client)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return l, errors.Join(rpc.WaitServing(ctx, conn), conn.Close())
}

// start starts a process that ends with this one.
func start(cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return nil
}

func (l *local) stop() {
	for _, cmd := range []*exec.Cmd{l.gateway, l.etcd} {
		if cmd == nil || cmd.Process == nil {
			continue
		}
		// Both are thrown away with all they hold.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	_ = os.RemoveAll(l.dir)
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

// residentMB reads the resident memory of a process, and shows how much of it is files: the binary itself.
func residentMB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	mb := 0.0
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "RssAnon:") || strings.HasPrefix(line, "RssFile:") {
			fmt.Fprint(os.Stderr, "  ", line)
		}
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				return 0, err
			}
			mb = kb / 1024
		}
	}
	return mb, nil
}

// processorTime reads how long a process has computed.
func processorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// After the name, which may hold anything, in parentheses.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
