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

// ServiceMain is the main function of a service's own binary: it reads the service's flags and those of logging, builds
// the service and runs it as Main does. Bad flags exit with 2.
func ServiceMain[S Service](name string, addFlags func(*pflag.FlagSet), build func(*slog.Logger) (S, error)) {
	var logging telemetry.Config
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	addFlags(flags)
	logging.AddFlags(flags)
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
		service, err := build(telemetry.NewLogger(logging, name))
		if err != nil {
			return err
		}
		return service.Run(ctx)
	})
}
