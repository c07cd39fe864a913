// Command apiserver is the gateway: it serves every kind and keeps their objects in etcd.
package main

import (
	"log/slog"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/apiserver"
)

func main() {
	var cfg apiserver.Config
	daemon.ServiceMain("apiserver", cfg.AddFlags, func(logger *slog.Logger) (*apiserver.Server, error) { return apiserver.New(cfg, logger) })
}
