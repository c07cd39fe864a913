package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/cmd/trireme/internal/nodeimage"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
)

// times are what one start took, in seconds; kept in run/up.json for whoever measures.
type times struct {
	GatewaySeconds         float64 `json:"gatewaySeconds"`
	NodesReadySeconds      float64 `json:"nodesReadySeconds"`
	FirstPodRunningSeconds float64 `json:"firstPodRunningSeconds,omitempty"`
	PodsRunningSeconds     float64 `json:"podsRunningSeconds,omitempty"`
}

// report follows the cluster until it is up or Timeout is over, brings in the images and manifests, and prints what
// there is now. Its error means that the cluster is not worth keeping.
func (c *cluster) report(ctx context.Context, ready func()) error {
	conn, err := dial(c.layout)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	obs := newObserver(conn, c.podsSince)
	return daemon.Run(ctx,
		daemon.Task{Name: "observe", Run: func(ctx context.Context) error {
			if err := rpc.WaitServing(ctx, conn); err != nil {
				return err
			}
			return obs.factory.Run(ctx)
		}},
		daemon.Task{Name: "up", Run: func(ctx context.Context) error {
			defer cancel()
			err := c.follow(ctx, conn, obs)
			if err == nil {
				ready()
			}
			return err
		}})
}

func (c *cluster) follow(ctx context.Context, conn *grpc.ClientConn, obs *observer) error {
	var t times
	bounded, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	err := c.comeUp(bounded, conn, obs, &t)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		c.progress.step("not all is up after %s:", c.cfg.Timeout)
		c.progress.print("%s", c.missing(obs))
	default:
		return err
	}
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.layout.status(), append(data, '\n'), 0o600); err != nil {
		return err
	}
	c.progress.print("%s", c.summary(obs, t))
	return nil
}

// comeUp waits for one stage after another.
func (c *cluster) comeUp(ctx context.Context, conn *grpc.ClientConn, obs *observer, t *times) error {
	begin := c.progress.start
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A node agent takes images before its node is registered.
	images := make(chan error, 1)
	go func() { images <- c.loadImages(ctx) }()

	if err := rpc.WaitServing(ctx, conn); err != nil {
		return err
	}
	t.GatewaySeconds = time.Since(begin).Seconds()
	c.progress.step("gateway serves")
	c.inviteNodes(ctx, conn)

	if err := obs.wait(ctx, func() bool {
		_, not := obs.readyNodes(c.nodes, begin)
		return len(not) == 0
	}); err != nil {
		return err
	}
	t.NodesReadySeconds = time.Since(begin).Seconds()
	c.progress.step("%s Ready", nodesInWords(c.nodes))

	if err := <-images; err != nil {
		return err
	}
	if err := createAll(ctx, conn, c.docs, c.progress.step); err != nil {
		return err
	}
	want := expectedOf(c.docs)
	if want.count() == 0 {
		return nil
	}
	if err := obs.wait(ctx, func() bool { n, _ := obs.progressOf(want); return n > 0 }); err != nil {
		return err
	}
	t.FirstPodRunningSeconds = time.Since(begin).Seconds()
	c.progress.step("first pod Running")
	if err := obs.wait(ctx, func() bool { _, not := obs.progressOf(want); return len(not) == 0 }); err != nil {
		return err
	}
	t.PodsRunningSeconds = time.Since(begin).Seconds()
	c.progress.step("%d pods Running", want.count())
	return nil
}

// loadImages brings the archives into the store of every node.
func (c *cluster) loadImages(ctx context.Context) error {
	if len(c.cfg.Images) == 0 {
		return nil
	}
	agent, err := rpc.Dial(rpc.ClientConfig{Address: "unix://" + c.layout.socket("nodeagent")})
	if err != nil {
		return err
	}
	defer agent.Close()
	if err := rpc.WaitServing(ctx, agent); err != nil {
		return err
	}
	for _, f := range c.cfg.Images {
		var names []string
		for _, node := range c.nodes {
			if names, err = nodeimage.Load(ctx, agent, node, f, nil); err != nil {
				return err
			}
		}
		c.progress.step("loaded %s into %s", strings.Join(names, ", "), nodesInWords(c.nodes))
	}
	return nil
}

// missing lists what is not up, the first few of it.
func (c *cluster) missing(obs *observer) string {
	const most = 8
	var lines []string
	_, not := obs.readyNodes(c.nodes, c.progress.start)
	for _, n := range not {
		lines = append(lines, fmt.Sprintf("node %s is not Ready", n))
	}
	_, pods := obs.progressOf(expectedOf(c.docs))
	lines = append(lines, pods...)
	var b strings.Builder
	for i, l := range lines {
		if i == most {
			fmt.Fprintf(&b, "           ... and %d more\n", len(lines)-most)
			break
		}
		fmt.Fprintf(&b, "           %s\n", l)
	}
	fmt.Fprintf(&b, "           logs: %s\n", c.layout.path("log"))
	return b.String()
}

func (c *cluster) summary(obs *observer, t times) string {
	var b strings.Builder
	services := [][]string{{"SERVICE", "ADDRESS", "TRY"}}
	for _, sp := range c.specs {
		services = append(services, []string{sp.service, sp.address, "grpcurl -plaintext -unix " + c.layout.socket(sp.service) + " list"})
	}
	fmt.Fprintf(&b, "\n%s", table(services))

	const most = 20
	want := expectedOf(c.docs)
	pods := obs.podsOf(want)
	if len(c.docs) == 0 {
		pods = obs.pods.Lister().List("", nil)
	}
	if len(pods) > 0 {
		rows := [][]string{{"POD", "STATUS", "NODE", "DEVICES"}}
		for i, p := range pods {
			if i == most {
				break
			}
			rows = append(rows, []string{podKey(p), obs.statusOf(p), orDash(p.GetSpec().GetNodeName()), devicesOf(p)})
		}
		fmt.Fprintf(&b, "\n%s", table(rows))
		if len(pods) > most {
			fmt.Fprintf(&b, "... and %d more\n", len(pods)-most)
		}
	}
	if t.NodesReadySeconds > 0 {
		fmt.Fprintf(&b, "\n%s Ready in %.2f s", nodesInWords(c.nodes), t.NodesReadySeconds)
		if t.FirstPodRunningSeconds > 0 {
			fmt.Fprintf(&b, ", first pod Running in %.2f s", t.FirstPodRunningSeconds)
		}
		fmt.Fprintf(&b, "; %s\n", c.gpus)
	}

	if c.invitation != "" {
		fmt.Fprintf(&b, "\nMake another machine a node of this cluster, within a day (it needs this program and a way to this machine):\n  %s\n", c.invitation)
	}

	me := os.Args[0]
	fmt.Fprintf(&b, "\nTry next:\n  %s get nodes\n  %s get pods -o wide -w\n", me, me)
	if len(pods) > 0 {
		name := pods[0].GetMetadata().GetName()
		fmt.Fprintf(&b, "  %s logs %s -f\n  %s describe pod %s\n", me, name, me, name)
		if c.traces {
			fmt.Fprintf(&b, "  %s trace pod/%s\n", me, name)
		}
	}
	fmt.Fprintf(&b, "  %s apply -f my-kubernetes-manifest.yaml\n", me)
	fmt.Fprintf(&b, "\nLogs are in %s. Ctrl-C or `%s` stops the cluster; its objects stay.\n", c.layout.path("log"), downCommand(c.cfg.StateDir, c.layout.dir))
	return b.String()
}

func downCommand(given, dir string) string {
	cmd := filepath.Base(os.Args[0]) + " down"
	if given != "" {
		cmd += " --state-dir " + dir
	}
	return cmd
}

func (e expected) count() int {
	n := len(e.pods)
	for _, o := range e.owners {
		n += o.replicas
	}
	return n
}

func nodesInWords(names []string) string {
	if len(names) == 1 {
		return "node " + names[0]
	}
	return fmt.Sprintf("%d nodes", len(names))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
