// Package up owns a cluster on one machine: `trireme up` starts the five services as child processes, keeps them
// running, and shows what became of them; `trireme down` stops what is left. It never does a service's work: what it
// knows of the cluster it reads from the gateway like every other client.
package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client/manifest"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	"trireme.dev/services/nodeagent"
)

// upService is the name of this command itself among the pid files.
const upService = "up"

// Config is what a user sets about a cluster.
type Config struct {
	// StateDir holds everything that outlives the processes.
	StateDir string
	// Simulate is the number of simulated nodes; zero runs real containers on this machine.
	Simulate int
	// GPUs is how many simulated GPUs each node has; where real ones are found they are used instead.
	GPUs int
	// Apply are manifests to create, Images archives to load before.
	Apply, Images []string
	// Listen and NodeListen are the gateway's and the node agent's TCP addresses.
	Listen, NodeListen string
	// TracesListen is the TCP address at which spans of other machines are taken; empty for none.
	TracesListen string
	// AuditLog, AuditPolicy and EventTTL are the gateway's flags of these names; unset where empty.
	AuditLog, AuditPolicy string
	EventTTL              time.Duration
	// NodeIP is the address that the node registers; where empty, that of NodeListen or the machine's first.
	NodeIP string
	// RuntimeBin is the folder of containerd, its shim and runc; Containerd the socket of one that runs already.
	RuntimeBin, Containerd string
	// Timeout bounds the wait for nodes and pods. The cluster stays up when it is over.
	Timeout time.Duration
}

// cluster is one run of `trireme up`.
type cluster struct {
	cfg      Config
	layout   layout
	exe      string
	docs     []manifest.Document
	progress *progress

	specs []spec
	agent nodeagent.Config
	nodes []string
	gpus  string // what the nodes have, in words
	// podsSince is when the earliest container that can run now was started; zero where some may have been running before.
	podsSince time.Time
	starter   starter
	// traces says that this process keeps traces; env is what services get beside the environment of this process.
	traces  bool
	spans   rpc.ServerConfig // where they are taken
	env     []string
	running map[string]*supervised
	// gateway is where the gateway listens; renew issues anew the certificates that end soon.
	gateway string
	renew   func() error
	// invitation is the command by which another machine becomes a node; empty where none can reach this one.
	invitation string
}

type supervised struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// run starts the cluster, calls ready once it is up as far as it will be, and stops it when ctx is done.
func run(ctx context.Context, cfg Config, stdout io.Writer, ready func()) error {
	c := &cluster{cfg: cfg, progress: &progress{w: stdout, start: time.Now()}, running: map[string]*supervised{}}
	// A terminal that is closed ends the cluster in good order.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()

	release, err := c.prepare(ctx, c.plan)
	if err != nil {
		return err
	}
	defer release()
	c.start(ctx)
	err = c.report(ctx, ready)
	if err == nil {
		<-ctx.Done()
	}
	return errors.Join(err, c.stop(context.WithoutCancel(ctx)))
}

// prepare does everything that can fail before a process is started; plan is what only the holder of the lock may do.
func (c *cluster) prepare(ctx context.Context, plan func(context.Context) error) (release func(), err error) {
	if c.docs, err = readManifests(c.cfg.Apply); err != nil {
		return nil, err
	}
	for _, f := range c.cfg.Images {
		if _, err := os.Stat(f); err != nil {
			return nil, err
		}
	}
	if c.exe, err = os.Executable(); err != nil {
		return nil, err
	}
	if c.layout, err = newLayout(c.cfg.StateDir); err != nil {
		return nil, err
	}
	if err := c.layout.create(); err != nil {
		return nil, err
	}
	unlock, err := takeLock(c.layout.lock())
	if errors.Is(err, errLocked) {
		owner, _ := readRecord(c.layout.pidFile(upService)) // 0 where it has none yet
		return nil, fmt.Errorf("a cluster runs on %s already (pid %d): `trireme down` stops it, another --state-dir starts a second one", c.layout.dir, owner.PID)
	}
	if err != nil {
		return nil, err
	}
	unlockMachine := func() {}
	if c.cfg.Simulate == 0 {
		if unlockMachine, err = lockMachine(); err != nil {
			unlock()
			return nil, err
		}
	}
	if err := c.occupy(ctx, plan); err != nil {
		unlockMachine()
		unlock()
		return nil, err
	}
	return func() {
		// Gone before the lock, so that whoever gets the lock reads no other's number.
		_ = os.Remove(c.layout.pidFile(upService))
		unlockMachine()
		unlock()
	}, nil
}

// occupy is what only the holder of the lock may do.
func (c *cluster) occupy(ctx context.Context, plan func(context.Context) error) error {
	if err := plan(ctx); err != nil {
		return err
	}
	self, err := recordOf(os.Getpid())
	if err != nil {
		return err
	}
	return self.write(c.layout.pidFile(upService))
}

func (c *cluster) start(ctx context.Context) {
	c.starter = newStarter()
	c.startTraces(ctx)
	c.startRenewal(ctx)
	s := &supervisor{exe: c.exe, layout: c.layout, starter: c.starter, env: c.env, say: c.progress.step}
	for _, sp := range c.specs {
		// Not cancelled by ctx: services stop in order.
		sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		run := &supervised{cancel: cancel, done: make(chan struct{})}
		c.running[sp.service] = run
		go func() {
			defer close(run.done)
			err := daemon.Run(sctx, daemon.Task{Name: sp.service, Run: func(ctx context.Context) error { return s.supervise(ctx, sp) }})
			if err != nil {
				c.progress.step("%v", err)
			}
		}()
	}
}

// stop ends first what makes new work, then what does it, then the pods, and last what keeps it all.
func (c *cluster) stop(ctx context.Context) error {
	start := time.Now()
	c.progress.print("\n")
	c.progress.step("stopping (Ctrl-C once more leaves at once)")
	c.stopServices("scheduler", "controller")
	c.stopServices("nodeagent", "deviced")
	err := cleanNode(ctx, c.layout)
	c.stopServices("apiserver")
	c.stopServices(renewal)
	c.stopServices(tracesService) // after the last spans
	close(c.starter)
	if err != nil {
		return err
	}
	c.progress.step("stopped in %.1f s; objects stay in %s, up with the same flags finds them", time.Since(start).Seconds(), c.layout.dir)
	return nil
}

func (c *cluster) stopServices(names ...string) {
	var wg sync.WaitGroup
	for _, name := range names {
		r := c.running[name]
		if r == nil {
			continue // a machine that joined has only some of them
		}
		wg.Go(func() {
			r.cancel()
			<-r.done
		})
	}
	wg.Wait()
}

// dial connects to the gateway's admin socket.
func dial(l layout) (*grpc.ClientConn, error) {
	return rpc.Dial(rpc.ClientConfig{Address: "unix://" + l.socket("apiserver")})
}
