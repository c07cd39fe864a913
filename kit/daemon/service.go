package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"trireme.dev/kit/telemetry"
)

// Service is what every service's New returns.
type Service interface {
	// Run works until ctx ends.
	Run(ctx context.Context) error
}

// Readier is a Service that can say whether it does its work yet; /readyz answers its error. One that is no Readier is
// ready as soon as it runs.
type Readier interface {
	Ready() error
}

// Program is one service as a process.
type Program struct {
	// Name of the service, on every line and span.
	Name string
	// Short says in a line what it does.
	Short string
	// TraceRoots says which spans may begin a trace, by name. Nil for a service that only follows traces: all but the
	// gateway.
	TraceRoots func(span string) bool
	// AddFlags registers the service's own flags.
	AddFlags func(*pflag.FlagSet)
	// Build makes the service once the flags are read.
	Build func(*slog.Logger) (Service, error)
}

// Run starts what the process reports on itself, builds the service and runs it until ctx ends.
func (p Program) Run(ctx context.Context, cfg telemetry.Config) error {
	logger := telemetry.NewLogger(cfg, p.Name)
	process, err := telemetry.Start(ctx, cfg, p.Name, p.TraceRoots, logger)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	defer process.Stop()
	service, err := p.Build(logger)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	ready := func() error { return nil }
	if r, ok := service.(Readier); ok {
		ready = r.Ready
	}
	// The metrics outlive the service's last work, not the service.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return Run(ctx,
		Task{Name: p.Name, Run: func(ctx context.Context) error { defer cancel(); return service.Run(ctx) }},
		Task{Name: "metrics", Run: func(ctx context.Context) error { return process.Run(ctx, ready) }},
		Task{Name: "memory", Run: trim},
	)
}

// Main is the main function of a service's own binary: it reads the service's flags and those of telemetry, and runs it
// as daemon.Main does. Bad flags exit with 2.
func (p Program) Main() {
	var cfg telemetry.Config
	flags := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	p.AddFlags(flags)
	cfg.AddFlags(flags)
	Main(func(ctx context.Context) error {
		switch err := flags.Parse(os.Args[1:]); {
		case errors.Is(err, pflag.ErrHelp):
			return nil
		case err != nil:
			return &ExitError{Code: 2, Err: err}
		}
		if flags.NArg() > 0 {
			return &ExitError{Code: 2, Err: fmt.Errorf("unknown argument %q", flags.Arg(0))}
		}
		return p.Run(ctx, cfg)
	})
}
