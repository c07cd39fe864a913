package scheduler

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"trireme.dev/client/leader"
	"trireme.dev/kit/rpc"
)

const (
	// DefaultSchedulerName is what pods name that do not choose a scheduler.
	DefaultSchedulerName = "default-scheduler"
	leaseName            = "trireme-scheduler"
)

// Config is what an operator sets.
type Config struct {
	// Gateway is how to reach the gateway; its certificate is also the one that is shown to callers on Listen.
	Gateway rpc.ClientConfig
	// Listen is a host:port for SchedulerService, health and reflection; empty for none. Gateways on other hosts need it to
	// pass calls on.
	Listen string
	// Socket is a unix socket for the same; empty for none.
	Socket string
	// ConfigFile in the shape of Kubernetes' KubeSchedulerConfiguration; empty for none. What it says goes before the
	// fields here.
	ConfigFile string
	// SchedulerName of the pods that are placed, where no file says; default-scheduler where empty.
	SchedulerName string
	// LeaderElect has only the holder of the lease kube-system/trireme-scheduler schedule. On by default in
	// NewConfig.
	LeaderElect bool
	// Identity in the lease, unique among schedulers; made from the host's name where empty.
	Identity string
	// InitialBackoff and MaxBackoff bound the pause of a pod after a failed attempt; 1 s and 10 s where zero.
	InitialBackoff, MaxBackoff time.Duration
	// Seed says where ties between nodes begin; the same seed and input give the same placements.
	Seed uint64

	// Record is a file for what the scheduler sees and decides, for trireme scheduler replay; empty for none.
	Record string

	// configuration is what stands in ConfigFile, once it has been read.
	configuration []byte
	// lease as the file has it.
	lease leader.Config
}

// NewConfig returns the defaults.
func NewConfig() Config {
	return Config{
		SchedulerName:  DefaultSchedulerName,
		LeaderElect:    true,
		InitialBackoff: time.Second,
		MaxBackoff:     10 * time.Second,
	}
}

// AddFlags registers the flags of all fields.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Gateway.AddFlags(fs)
	fs.StringVar(&c.Listen, "listen", c.Listen, "`host:port` for explanations, health and reflection")
	fs.StringVar(&c.Socket, "socket", c.Socket, "unix `socket` for explanations, health and reflection")
	fs.StringVar(&c.ConfigFile, "config", c.ConfigFile, "configuration `file`, as Kubernetes' scheduler has it; what it says goes before flags")
	fs.StringVar(&c.SchedulerName, "scheduler-name", c.SchedulerName, "`name` that pods choose this scheduler by")
	fs.BoolVar(&c.LeaderElect, "leader-elect", c.LeaderElect, "schedule only while holding the lease kube-system/"+leaseName)
	fs.StringVar(&c.Identity, "identity", c.Identity, "`name` in the lease; made from the host's name by default")
	fs.DurationVar(&c.InitialBackoff, "pod-initial-backoff", c.InitialBackoff, "`pause` after a pod's first failed attempt")
	fs.DurationVar(&c.MaxBackoff, "pod-max-backoff", c.MaxBackoff, "longest `pause` between attempts at a pod")
	fs.StringVar(&c.Record, "record", c.Record, "`file` for a record of what the scheduler sees and decides, see trireme scheduler replay")
	fs.Uint64Var(&c.Seed, "seed", c.Seed, "`number` that says where ties between nodes begin")
}

// address is where gateways reach this scheduler; a socket, from its own host only, where there is nothing else.
func (c *Config) address() string {
	if c.Listen == "" && c.Socket != "" {
		return "unix://" + c.Socket
	}
	return c.Listen
}

// Validate names all that is wrong.
func (c *Config) Validate() error {
	var errs []error
	if err := c.Gateway.Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.InitialBackoff < 0 || c.MaxBackoff < 0 {
		errs = append(errs, errors.New("--pod-initial-backoff, --pod-max-backoff: want 0 or more"))
	}
	if c.MaxBackoff > 0 && c.MaxBackoff < c.InitialBackoff {
		errs = append(errs, fmt.Errorf("--pod-max-backoff %s is less than --pod-initial-backoff %s", c.MaxBackoff, c.InitialBackoff))
	}
	return errors.Join(errs...)
}
