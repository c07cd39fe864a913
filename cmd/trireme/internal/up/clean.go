package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"trireme.dev/kit/telemetry"
	"trireme.dev/services/nodeagent"
)

// saveAgent keeps how the node agent runs for as long as it may have left something on the machine: whoever finds the
// file cleans up.
func saveAgent(l layout, cfg nodeagent.Config) error {
	data, err := json.MarshalIndent(cfg, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(l.agent(), append(data, '\n'), 0o600)
}

// cleanNode stops the pods of a cluster whose node agent no longer runs, and the containerd that it started.
func cleanNode(ctx context.Context, l layout) error {
	data, err := os.ReadFile(l.agent())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // all is clean
	}
	if err != nil {
		return err
	}
	var cfg nodeagent.Config
	if err := json.Unmarshal(data, &cfg); err != nil {
		return fmt.Errorf("%s: %w", l.agent(), err)
	}
	log, err := openLog(l.log("nodeagent"))
	if err != nil {
		return err
	}
	defer log.Close()
	if err := nodeagent.Cleanup(ctx, cfg, telemetry.NewLoggerTo(log, telemetry.Config{}, "nodeagent")); err != nil {
		return fmt.Errorf("stop pods: %w", err)
	}
	return os.Remove(l.agent())
}
