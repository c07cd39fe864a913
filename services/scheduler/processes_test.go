package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"trireme.dev/kit/daemon"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// schedulerEnv makes the test's binary a scheduler: its identity, then the gateway's address.
const schedulerEnv = "TRIREME_TEST_SCHEDULER"

func TestMain(m *testing.M) {
	if identity, gateway, ok := strings.Cut(os.Getenv(schedulerEnv), ";"); ok {
		daemon.Main(func(ctx context.Context) error {
			cfg := NewConfig()
			cfg.Gateway.Address = gateway
			leads(identity)(&cfg)
			s, err := New(cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
	}
	goleak.VerifyTestMain(m)
}

// processes are schedulers that contend for the lease, by identity.
type processes struct {
	c       *cluster
	gateway string
	started int
	running map[string]*exec.Cmd
}

func (p *processes) start() {
	p.c.t.Helper()
	p.started++
	identity := fmt.Sprint("scheduler-", p.started)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), schedulerEnv+"="+identity+";"+p.gateway)
	cmd.Stderr = p.c.t.Output()
	if err := cmd.Start(); err != nil {
		p.c.t.Fatal(err)
	}
	p.running[identity] = cmd
	p.c.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have been killed
		_ = cmd.Wait()
	})
}

// leader waits until one of those that run holds the lease.
func (p *processes) leader() (identity string) {
	p.c.t.Helper()
	await(p.c, "a scheduler to lead", func(leases map[string]*coordinationv1.Lease) bool {
		identity = leases[leaseName].GetSpec().GetHolderIdentity()
		return p.running[identity] != nil
	})
	return identity
}

func (p *processes) signal(identity string, signal syscall.Signal) {
	p.c.t.Helper()
	if err := p.running[identity].Process.Signal(signal); err != nil {
		p.c.t.Fatalf("%s to %s: %v", signal, identity, err)
	}
}

// TestTakeoverOfProcesses: of two scheduler processes the one that leads is killed, or stopped for longer than its lease and
// woken up, again and again and with bindings under way. The other carries on, the woken one leads again when its turn comes,
// and in the end every pod is bound once, gangs as a whole, on nodes that are exactly full.
func TestTakeoverOfProcesses(t *testing.T) {
	c := newCluster(t)
	rounds := []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGKILL}
	const nodes, perRound, gangSize = 10, 80, 8
	perNode := int64(len(rounds) * perRound / nodes)
	for i := range nodes {
		c.node(fmt.Sprintf("n%d", i), map[string]string{"nvidia.com/gpu": fmt.Sprint(perNode)})
	}
	book := keepLedger(t, c.conn, gangSize, func(string) room { return room{8000, perNode} })
	created := 0
	half := func() {
		for range perRound/2 - gangSize {
			c.create(pod(fmt.Sprintf("p-%03d", created), gpus(1)))
			created++
		}
		gang := fmt.Sprintf("g-%03d", created)
		c.gang(gang, gangSize)
		for range gangSize {
			c.create(pod(fmt.Sprintf("p-%03d", created), inGroup(gang, 1)))
			created++
		}
	}
	bound := func(n int) {
		t.Helper()
		await(c, fmt.Sprintf("%d of %d pods to be bound", n, created), func(pods map[string]*corev1.Pod) bool {
			have := 0
			for _, p := range pods {
				if p.GetSpec().GetNodeName() != "" {
					have++
				}
			}
			return have >= n
		})
	}
	p := &processes{c: c, gateway: c.api.Listen(t), running: map[string]*exec.Cmd{}}
	p.start()
	p.start()
	for round, signal := range rounds {
		first := p.leader()
		half()
		bound(round*perRound + 1) // it is at work
		p.signal(first, signal)
		gone := p.running[first]
		delete(p.running, first)
		half()
		bound(created)
		second := p.leader()
		t.Logf("round %d: %s gets %s, %s carries on", round+1, first, signal, second)
		if signal == syscall.SIGSTOP {
			p.running[first] = gone
			p.signal(first, syscall.SIGCONT)
		} else {
			p.start()
		}
	}
	c.create(pod("no-room", gpus(1)))
	c.awaitCondition("no-room", "10 Insufficient nvidia.com/gpu")
	book.check(c.ctx)
}
