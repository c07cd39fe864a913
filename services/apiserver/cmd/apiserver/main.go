// Command apiserver is the gateway: it serves every kind and keeps their objects in etcd.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
	"trireme.dev/services/apiserver"
)

func main() {
	var cfg apiserver.Config
	var logging telemetry.Config
	flags := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	cfg.AddFlags(flags)
	logging.AddFlags(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(2)
	}
	daemon.Main(func(ctx context.Context) error {
		service, err := apiserver.New(cfg, telemetry.NewLogger(logging, "apiserver"))
		if err != nil {
			return err
		}
		return service.Run(ctx)
	})
}
