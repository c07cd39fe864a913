package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/jointoken"
	"trireme.dev/cmd/trireme/internal/join"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/rpc"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	"trireme.dev/services/deviced"
)

// JoinConfig is what a user sets about a machine that joins a cluster.
type JoinConfig struct {
	// Config holds what a node of `up` has too: StateDir, Simulate, GPUs, NodeListen, NodeIP, RuntimeBin, Containerd, Timeout.
	Config
	// Gateway is the gateway's address.
	Gateway string
	// Token is the word that a person carried here; empty where the machine has a certificate.
	Token string
	// Name of the node; with Simulate, what the names begin with.
	Name string
}

// JoinCommand returns `trireme node join`.
func JoinCommand() *cobra.Command {
	cfg := JoinConfig{Config: Config{GPUs: 8, Timeout: time.Minute}}
	cmd := &cobra.Command{
		Use:   "join ADDRESS --token TOKEN",
		Short: "Make this machine a node of a cluster and keep it one until Ctrl-C",
		Long: `Make this machine a node of the cluster whose gateway is at ADDRESS (host:port).

The token comes from ` + "`trireme token create`" + ` beside the gateway, which prints the whole line. Its last part names the cluster's
CA, so that the token is shown to no other gateway. For it the machine gets a certificate, which is kept in the state directory:
to start again needs no token until the certificate has ended, which is renewed unless the node is deleted. The exit code is 3
where somebody has deleted the node.`,
		Example: `  trireme node join 10.0.0.5:7443 --token abcdef.0123456789abcdef.PIN   # real containers (root, Linux)
  trireme node join 10.0.0.5:7443                                       # the next time
  trireme node join 10.0.0.5:7443 --token T --name lab --simulate 4     # lab-0 to lab-3, anywhere`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Gateway = args[0]
			if err := cfg.check(); err != nil {
				return err
			}
			return runJoin(cmd.Context(), cfg, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&cfg.Token, "token", "", "`token` of the cluster; not needed where this machine has joined before")
	fs.StringVar(&cfg.Name, "name", "", "`name` of the node (default this machine's); with --simulate, what the names begin with")
	fs.StringVar(&cfg.NodeIP, "node-ip", "", "`address` by which gateway and nodes reach this one (default the one on the way to ADDRESS)")
	fs.StringVar(&cfg.NodeListen, "node-listen", "", "`address` of the node agent (mutual TLS; default port 7444 of --node-ip)")
	addNodeFlags(fs, &cfg.Config)
	return cmd
}

func (cfg *JoinConfig) check() error {
	if host, _, err := net.SplitHostPort(cfg.Gateway); err != nil || host == "" {
		return fmt.Errorf("%q is no address of a gateway: want host:port, such as 10.0.0.5:7443", cfg.Gateway)
	}
	if cfg.Token != "" {
		if _, err := jointoken.Parse(cfg.Token); err != nil {
			return fmt.Errorf("--token: %w", err)
		}
	}
	if cfg.Name != "" && nodeName(cfg.Name) != cfg.Name {
		return fmt.Errorf("--name %q: want lower-case letters, digits, - and ., such as %s", cfg.Name, nodeName(cfg.Name))
	}
	return cfg.Config.check()
}

// member is one run of `trireme node join`: a cluster of which only the node is here.
type member struct {
	*cluster
	join JoinConfig
}

const exitDeleted = 3

// errDeleted ends a member whose nodes somebody has deleted.
// Supervisors are not to start it again: exitDeleted tells it from failures.
var errDeleted = errors.New("deleted from the cluster")

// runJoin joins, keeps the node running, and stops it when ctx is done or somebody has deleted it.
func runJoin(ctx context.Context, cfg JoinConfig, stdout io.Writer) error {
	m := &member{
		cluster: &cluster{cfg: cfg.Config, progress: &progress{w: stdout, start: time.Now()}, running: map[string]*supervised{}},
		join:    cfg,
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	release, err := m.prepare(ctx, m.plan)
	if err != nil {
		return err
	}
	defer release()
	m.start(ctx)
	err = m.follow(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	if errors.Is(err, errDeleted) {
		err = &daemon.ExitError{Code: exitDeleted, Err: fmt.Errorf("%s: %w: the same command without --token brings it back", nodesInWords(m.nodes), errDeleted)}
	}
	return errors.Join(err, m.stop(context.WithoutCancel(ctx)))
}

// plan checks the machine, ends what an earlier run left, gets the certificate and decides the command lines.
func (m *member) plan(ctx context.Context) error {
	if _, err := os.Stat(m.layout.path("pki", "ca.key")); err == nil {
		return fmt.Errorf("%s holds a cluster of its own, which `trireme up` made: choose another --state-dir", m.layout.dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	runtimeDir, err := m.findContainers(ctx)
	if err != nil {
		return err
	}
	if err := stopLeftovers(ctx, m.layout, serviceGrace, m.progress.step); err != nil {
		return err
	}
	if err := m.addresses(); err != nil {
		return err
	}
	name, err := m.name()
	if err != nil {
		return err
	}
	m.nodes = nodeNames(name, m.cfg.Simulate)
	if err := m.certificate(ctx, name); err != nil {
		return err
	}
	files := join.Files(m.layout.pki())
	m.agent = agentConfig(m.cfg, m.layout, files, m.join.Gateway, m.cfg.NodeListen, name, runtimeDir)
	m.agent.RenewCertificate = true
	devices := deviced.Config{Socket: m.layout.socket("deviced")}
	if err := m.planDevices(&devices); err != nil {
		return err
	}
	if err := saveAgent(m.layout, m.agent); err != nil {
		return err
	}
	m.specs = nodeSpecs(m.agent, devices)
	m.env = unlessSet(spanRoom)
	return nil
}

// addresses fills in what the user left open about how this node is reached.
func (m *member) addresses() error {
	host := hostOf(m.cfg.NodeListen)
	if m.cfg.NodeIP == "" {
		m.cfg.NodeIP = host
	}
	if m.cfg.NodeIP == "" {
		ip := join.Local(m.join.Gateway)
		if ip == nil {
			return fmt.Errorf("this machine has no route to %s: is the address right, and the network up?", m.join.Gateway)
		}
		m.cfg.NodeIP = ip.String()
	}
	if m.cfg.NodeListen == "" {
		m.cfg.NodeListen = net.JoinHostPort(m.cfg.NodeIP, "7444")
	}
	var err error
	m.cfg.NodeListen, err = claim("--node-listen", m.cfg.NodeListen)
	return err
}

// name of the node: as the user says, or as it joined before, or the machine's.
func (m *member) name() (string, error) {
	before, _, err := join.Member(m.layout.pki())
	switch {
	case m.join.Name != "":
		return m.join.Name, nil
	case before != "":
		return before, nil
	case err != nil && m.join.Token == "":
		return "", err
	}
	host, err := os.Hostname()
	return nodeName(host), err
}

// certificate makes sure that there is one for the node.
func (m *member) certificate(ctx context.Context, name string) error {
	dir := m.layout.pki()
	before, names, err := join.Member(dir)
	lacks := slices.ContainsFunc(m.nodes, func(n string) bool { return !slices.Contains(names, n) })
	usable := err == nil && before == name && !lacks
	if m.join.Token == "" {
		switch {
		case usable:
			m.progress.step("node %s has joined before: its certificate is in %s", name, dir)
			return nil
		case before == "" && err == nil:
			return fmt.Errorf("this machine has not joined yet: --token is needed (`trireme token create` beside the gateway prints the whole line)")
		case err != nil:
			return err
		case before != name:
			return fmt.Errorf("this machine has joined as %s: another --name needs a --token", before)
		}
		return fmt.Errorf("the certificate of this machine is not for %s: more nodes need a --token", strings.Join(m.nodes, ", "))
	}
	token, err := jointoken.Parse(m.join.Token)
	if err != nil {
		return fmt.Errorf("--token: %w", err)
	}
	if usable && join.Belongs(dir, token.Pin) {
		m.progress.step("node %s has joined before: the token is not needed", name)
		return nil
	}
	request := join.Request{Address: m.join.Gateway, Token: token, Node: name, Simulate: m.cfg.Simulate, Dir: dir}
	if ip := net.ParseIP(m.cfg.NodeIP); ip != nil {
		request.IPs = []net.IP{ip}
	}
	warnings, err := join.Do(ctx, request)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		m.progress.step("warning: %s", w)
	}
	m.progress.step("%s gave this machine the certificate of node %s", m.join.Gateway, name)
	return nil
}

// follow says when the node is Ready, and returns when it has been deleted or ctx is done.
func (m *member) follow(ctx context.Context) error {
	conn, err := rpc.Dial(m.agent.Gateway)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	obs := newNodeObserver(conn)
	return daemon.Run(ctx,
		daemon.Task{Name: "observe", Run: func(ctx context.Context) error {
			if err := m.reach(ctx, conn); err != nil {
				return err
			}
			return obs.factory.Run(ctx)
		}},
		daemon.Task{Name: "join", Run: func(ctx context.Context) error {
			defer cancel()
			bounded, stop := context.WithTimeout(ctx, m.cfg.Timeout)
			defer stop()
			ready := func() bool { _, not := obs.readyNodes(m.nodes, m.progress.start); return len(not) == 0 }
			switch err := obs.wait(bounded, ready); {
			case err == nil:
				m.progress.step("%s Ready in %.2f s; %s", nodesInWords(m.nodes), time.Since(m.progress.start).Seconds(), m.gpus)
				m.progress.print("\nThis machine is part of the cluster at %s. Ctrl-C stops its pods and its node agent; logs are in %s.\n",
					m.join.Gateway, m.layout.path("log"))
			case ctx.Err() != nil:
				return nil
			default:
				m.progress.step("%s not Ready after %s, still trying; the log is %s", nodesInWords(m.nodes), m.cfg.Timeout, m.layout.log("nodeagent"))
				if err := obs.wait(ctx, ready); err != nil {
					return nil
				}
				m.progress.step("%s Ready", nodesInWords(m.nodes))
			}
			gone := func() bool {
				return !slices.ContainsFunc(m.nodes, func(n string) bool { _, there := obs.nodes.Lister().Get("", n); return there })
			}
			if err := obs.wait(ctx, gone); err != nil {
				return nil
			}
			return errDeleted
		}},
	)
}

// reach waits for the gateway and says what is in the way.
func (m *member) reach(ctx context.Context, conn *grpc.ClientConn) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	return daemon.Run(waiting,
		daemon.Task{Name: "wait", Run: func(ctx context.Context) error {
			defer cancel()
			return rpc.WaitServing(ctx, conn)
		}},
		daemon.Task{Name: "say", Run: func(ctx context.Context) error {
			said := ""
			const patience = 2 * time.Second
			return loop.Every(ctx, loop.Config{Name: "reach the gateway", Period: patience, Delay: patience, Logger: slog.New(slog.DiscardHandler)}, func(ctx context.Context) error {
				if err := rpc.Diagnose(ctx, m.agent.Gateway); err != nil && err.Error() != said && ctx.Err() == nil {
					said = err.Error()
					m.progress.step("still trying: %s", said)
				}
				return nil
			})
		}},
	)
}

// stop ends the agent, then the pods.
func (m *member) stop(ctx context.Context) error {
	start := time.Now()
	m.progress.print("\n")
	m.progress.step("stopping (Ctrl-C once more leaves at once)")
	m.stopServices("nodeagent", "deviced")
	err := errors.Join(cleanNode(ctx, m.layout), m.sayGoodbye(ctx))
	m.stopServices(tracesService)
	close(m.starter)
	if err != nil {
		return err
	}
	m.progress.step("stopped in %.1f s; the same command without --token makes this machine a node again", time.Since(start).Seconds())
	return nil
}

// sayGoodbye gives the nodes' leases back: without one a node is not taken for alive, and may be deleted at once. A gateway
// that is away hears nothing, and the leases run out.
func (m *member) sayGoodbye(ctx context.Context) error {
	conn, err := rpc.Dial(m.agent.Gateway)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	leases := client.For[*coordinationv1.Lease](conn)
	for _, n := range m.nodes {
		if _, err := leases.Delete(ctx, "kube-node-lease", n, nil); ctx.Err() != nil || apierr.IsUnavailable(err) {
			return nil
		}
	}
	return nil
}
