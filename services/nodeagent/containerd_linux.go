package nodeagent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/nodeagent/internal/network"
	"trireme.dev/services/nodeagent/internal/routes"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/containerd"
)

func containerdConfig(cfg Config) containerd.Config {
	return containerd.Config{
		Address: cfg.ContainerdSocket, StateDir: filepath.Join(cfg.StateDir, "runtime"), RunDir: cfg.RunDir,
		Network: networkConfig(cfg),
	}
}

func networkConfig(cfg Config) network.Config {
	return network.Config{StateDir: filepath.Join(cfg.StateDir, "runtime", "network")}
}

func supervisor(cfg Config, logger *slog.Logger) (*containerd.Supervisor, error) {
	return containerd.NewSupervisor(containerd.SupervisorConfig{
		Binary: filepath.Join(cfg.RuntimeBin, "containerd"), RootDir: filepath.Join(cfg.StateDir, "containerd"),
		StateDir: filepath.Join(cfg.RunDir, "containerd"),
	}, logger)
}

// openContainerd connects to the containerd that is configured, having started it where it is the agent's own.
func openContainerd(ctx context.Context, cfg Config, logger *slog.Logger) (runtime.Runtime, []daemon.Task, error) {
	own := containerdConfig(cfg)
	var tasks []daemon.Task
	if cfg.RuntimeBin != "" {
		s, err := supervisor(cfg, logger)
		if err != nil {
			return nil, nil, err
		}
		if err := s.Start(ctx); err != nil {
			return nil, nil, err
		}
		own.Address, own.ShimSocketDir = s.Socket(), s.ShimSocketDir()
		own.RuncBinary = filepath.Join(cfg.RuntimeBin, "runc")
		tasks = append(tasks, daemon.Task{Name: "containerd", Run: s.Run})
	}
	r, err := containerd.New(own, logger)
	if err != nil {
		return nil, nil, err
	}
	return r, append(tasks, daemon.Task{Name: "runtime", Run: r.Run}), nil
}

// routing keeps the ways to other nodes' pods; nil where the runtime has no network of its own.
func routing(name string, engine runtime.Runtime, deps routes.Deps) []daemon.Task {
	real, ok := engine.(*containerd.Runtime)
	if !ok {
		return nil
	}
	deps.SetPeers = real.SetPeers
	return []daemon.Task{{Name: "routes", Run: routes.New(routes.Config{Node: name}, deps).Run}}
}

// containerdIdle reports that no pod is on the machine, as far as can be told without starting a containerd for it.
func containerdIdle(cfg Config) (bool, error) {
	if cfg.RuntimeBin == "" {
		return false, nil
	}
	s, err := supervisor(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return false, err
	}
	if conn, err := net.Dial("unix", s.Socket()); err == nil {
		return false, conn.Close()
	}
	for _, dir := range []string{filepath.Join(cfg.StateDir, "runtime", "pods"), filepath.Join(cfg.RunDir, "pods")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if len(entries) > 0 {
			return false, nil
		}
	}
	return true, nil
}

// closeContainerd removes the pods' network and stops the agent's own containerd.
func closeContainerd(ctx context.Context, cfg Config, logger *slog.Logger) error {
	bridge, err := network.New(networkConfig(cfg), logger)
	if err != nil {
		return err
	}
	if err := errors.Join(routes.Remove(), bridge.Teardown(ctx)); err != nil {
		return err
	}
	logger.Info("pod network removed")
	if cfg.RuntimeBin == "" {
		return nil
	}
	s, err := supervisor(cfg, logger)
	if err != nil {
		return err
	}
	if err := s.Stop(ctx); err != nil {
		return err
	}
	logger.Info("containerd stopped")
	return nil
}
