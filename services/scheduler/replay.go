package scheduler

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/chain"
	"trireme.dev/services/scheduler/internal/recording"
	"trireme.dev/services/scheduler/internal/replay"
)

// Replay makes the decisions of a record again and prints what came of it to out: whether they came out as they were, or, with
// the configuration file other, in what they would have differed. It reports whether they are the same. Plugins of third
// parties must be those of the scheduler that recorded.
func Replay(file, other string, out io.Writer, extra ...framework.Factory) (bool, error) {
	in, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer in.Close()
	r, err := recording.NewReader(in)
	if err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	cfg, err := recorded(r, other, extra)
	if err != nil {
		return false, err
	}
	if other != "" {
		o, err := replay.RunOther(cfg, r, func() (*recording.Reader, error) {
			if _, err := in.Seek(0, io.SeekStart); err != nil {
				return nil, err
			}
			return recording.NewReader(in)
		})
		if err != nil {
			return false, fmt.Errorf("%s: %w", file, err)
		}
		truncated(out, file, o.Truncated)
		return o.Print(out)
	}
	s, err := replay.RunSame(cfg, r)
	if err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	truncated(out, file, s.Truncated)
	if s.Difference != "" {
		_, err = fmt.Fprintf(out, "%d decisions as recorded, then %s", s.Decisions, s.Difference)
		return false, err
	}
	_, err = fmt.Fprintf(out, "%d decisions, all as recorded\n", s.Decisions)
	return true, err
}

func truncated(out io.Writer, file string, is bool) {
	if is {
		fmt.Fprintf(out, "%s ends within an entry, as if its scheduler had been killed: up to there\n", file)
	}
}

// recorded is the chain of the scheduler that made a record, or what would have been made with another configuration.
func recorded(r *recording.Reader, other string, extra []framework.Factory) (chain.Config, error) {
	h := r.Header()
	cfg := Config{
		SchedulerName: h.GetSchedulerName(), ConfigFile: h.GetConfigFile(), configuration: h.GetConfig(), Seed: h.GetSeed(),
		InitialBackoff: h.GetInitialBackoff().AsDuration(), MaxBackoff: h.GetMaxBackoff().AsDuration(),
	}
	if len(h.GetConfig()) > 0 && cfg.ConfigFile == "" {
		cfg.ConfigFile = "the record's configuration"
	}
	if other != "" {
		cfg.ConfigFile, cfg.configuration = other, nil
	}
	profiles, err := cfg.configure(slog.New(slog.DiscardHandler), extra)
	return chain.Config{Profiles: profiles, Seed: cfg.Seed, InitialBackoff: cfg.InitialBackoff, MaxBackoff: cfg.MaxBackoff}, err
}
