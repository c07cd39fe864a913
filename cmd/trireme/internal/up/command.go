package up

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Commands returns `up`, `down`, `restore` and the hidden check that up runs in namespaces of its own.
func Commands() []*cobra.Command {
	return []*cobra.Command{upCommand(), downCommandLine(), restoreCommand(), checkSandboxCommand()}
}

func upCommand() *cobra.Command {
	cfg := Config{GPUs: 8, Listen: "127.0.0.1:7443", Timeout: time.Minute}
	var (
		detach  bool
		readyFD int
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this machine and keep it running until Ctrl-C",
		Long: `Start a cluster on this machine: the five services as child processes, with embedded etcd, and containerd for
real containers or simulated nodes without it. Its state is kept in one directory; the next up finds it as it was.`,
		Example: `  trireme up                                        # real containers (root, Linux)
  trireme up --simulate 4 --apply gang.yaml         # four simulated nodes of 8 GPUs, anywhere
  trireme up --simulate 4 --detach; trireme down    # in the background`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.check(); err != nil {
				return err
			}
			if detach {
				return runDetached(cmd.Context(), cfg.StateDir, cmd.OutOrStdout())
			}
			if readyFD > 0 {
				return runInBackground(cmd.Context(), cfg, readyFD)
			}
			return run(cmd.Context(), cfg, cmd.OutOrStdout(), func() {})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	addNodeFlags(fs, &cfg)
	fs.StringArrayVar(&cfg.Apply, "apply", nil, "manifest `FILE` to create once the cluster serves (repeatable)")
	fs.StringArrayVar(&cfg.Images, "load-image", nil, "image archive `FILE` to load into every node before (repeatable)")
	fs.BoolVar(&detach, "detach", false, "return once the cluster is up and leave it in the background")
	fs.StringVar(&cfg.Listen, "listen", cfg.Listen, "`address` of the gateway (mutual TLS)")
	fs.StringVar(&cfg.NodeListen, "node-listen", cfg.NodeListen, "`address` of the node agent (mutual TLS; default port 7444, of the loopback for simulated nodes)")
	fs.StringVar(&cfg.NodeIP, "node-ip", "", "`address` that the node registers, where the machine has several (default that of --node-listen, or the first)")
	fs.StringVar(&cfg.TracesListen, "traces-listen", "", "`address` at which to take spans of services on other machines (OTLP over mutual TLS; usual port 4317)")
	fs.StringVar(&cfg.AuditLog, "audit-log", "", "`file` for the gateway's audit events, in Kubernetes' shape")
	fs.StringVar(&cfg.AuditPolicy, "audit-policy", "", "`file` of kind Policy (audit.k8s.io/v1) that says which calls are told of; without it, all writes and what is refused")
	fs.DurationVar(&cfg.EventTTL, "event-ttl", 0, "`time` for which events are kept after they were last written (default 1h)")
	fs.IntVar(&readyFD, "ready-fd", 0, "")
	if err := fs.MarkHidden("ready-fd"); err != nil {
		panic(err) // the flag is registered above
	}
	return cmd
}

// addNodeFlags registers what a node of `up` and one that joins have in common.
func addNodeFlags(fs *pflag.FlagSet, cfg *Config) {
	fs.IntVar(&cfg.Simulate, "simulate", cfg.Simulate, "run `N` simulated nodes instead of real containers; no root needed")
	fs.IntVar(&cfg.GPUs, "gpus", cfg.GPUs, "simulated GPUs per node; a real node that has real ones uses these instead")
	fs.StringVar(&cfg.StateDir, "state-dir", "", "`directory` of the state (default /var/lib/trireme as root, else ~/.local/state/trireme)")
	fs.DurationVar(&cfg.Timeout, "timeout", cfg.Timeout, "how long to wait for nodes and pods before saying what is missing")
	fs.StringVar(&cfg.RuntimeBin, "runtime-bin", "", "`folder` of containerd, its shim and runc (default ../build/runtime/bin beside this program, then PATH)")
	fs.StringVar(&cfg.Containerd, "containerd-socket", "", "`socket` of a containerd to use instead of starting one")
}

// check names what makes no sense.
func (cfg *Config) check() error {
	if cfg.Simulate < 0 || cfg.Simulate > 5000 {
		return fmt.Errorf("--simulate %d: want a number of nodes between 1 and 5000", cfg.Simulate)
	}
	if cfg.GPUs < 0 || cfg.GPUs > 1024 {
		return fmt.Errorf("--gpus %d: want a number between 0 and 1024", cfg.GPUs)
	}
	if cfg.Timeout <= 0 {
		return fmt.Errorf("--timeout %s: want more than zero", cfg.Timeout)
	}
	if cfg.EventTTL != 0 && cfg.EventTTL < time.Second {
		return fmt.Errorf("--event-ttl %s: want a second or more", cfg.EventTTL)
	}
	if err := cfg.checkAudit(); err != nil {
		return err
	}
	if cfg.NodeIP != "" && net.ParseIP(cfg.NodeIP) == nil {
		return fmt.Errorf("--node-ip %q: want an IP address", cfg.NodeIP)
	}
	if cfg.Simulate > 0 && (cfg.RuntimeBin != "" || cfg.Containerd != "") {
		return fmt.Errorf("--simulate runs no containers: --runtime-bin and --containerd-socket do not go with it")
	}
	return nil
}

// checkAudit names what is wrong with the gateway's audit log before anything is started, and makes its paths whole.
func (cfg *Config) checkAudit() error {
	if cfg.AuditPolicy != "" {
		if cfg.AuditLog == "" {
			return errors.New("--audit-policy needs --audit-log, the file to write to")
		}
		if _, err := os.Stat(cfg.AuditPolicy); err != nil {
			return fmt.Errorf("--audit-policy: %w", err)
		}
	}
	for _, path := range []*string{&cfg.AuditLog, &cfg.AuditPolicy} {
		if *path == "" || *path == "-" {
			continue
		}
		whole, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = whole
	}
	return nil
}

func downCommandLine() *cobra.Command {
	var (
		stateDir string
		purge    bool
	)
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster that up started on this machine",
		Long: `Stop the cluster that up started on this machine: its pods, its services and its containerd. Objects stay in the
state directory, and the next up starts them again; --purge deletes them and everything else of the cluster.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return down(cmd.Context(), stateDir, purge, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "`directory` of the cluster's state (default as for up)")
	cmd.Flags().BoolVar(&purge, "purge", false, "delete the cluster's state as well: objects, images, volumes, logs, certificates")
	return cmd
}

func checkSandboxCommand() *cobra.Command {
	return &cobra.Command{
		Use:    checkCommand + " FOLDER",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return checkSandbox(args[0]) },
	}
}
