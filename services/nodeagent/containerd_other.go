//go:build !linux

package nodeagent

import (
	"context"
	"errors"
	"log/slog"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/nodeagent/internal/routes"
	"trireme.dev/services/nodeagent/internal/runtime"
)

var errLinuxOnly = errors.New("containers run on Linux only: use --simulate here")

func openContainerd(context.Context, Config, *slog.Logger) (runtime.Runtime, []daemon.Task, error) {
	return nil, nil, errLinuxOnly
}

func routing(string, runtime.Runtime, routes.Deps) []daemon.Task { return nil }

func containerdIdle(Config) (bool, error) { return true, nil }

func closeContainerd(context.Context, Config, *slog.Logger) error { return nil }
