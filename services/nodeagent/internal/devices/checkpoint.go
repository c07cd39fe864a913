package devices

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// allocations are by pod UID, container and resource.
type allocations map[string]map[string]map[string]*allocation

// allocation is what a container holds of a resource.
type allocation struct {
	// IDs of the devices, sorted.
	IDs []string `json:"ids"`
	// Response of the plugin, a v1beta1.ContainerAllocateResponse as protobuf.
	Response []byte `json:"response"`
	// PreStart says that the plugin wants PreStartContainer before each start.
	PreStart bool `json:"preStart,omitempty"`
}

// checkpoint is what outlives the agent.
type checkpoint struct {
	// Devices known, by resource.
	Devices map[string][]string `json:"devices"`
	// Allocations to containers.
	Allocations allocations `json:"allocations"`
}

// envelope guards a checkpoint against a torn or edited file.
type envelope struct {
	Data     json.RawMessage `json:"data"`
	Checksum string          `json:"checksum"`
}

// readCheckpoint reads what writeCheckpoint wrote; a missing file is an empty checkpoint.
func readCheckpoint(path string) (checkpoint, error) {
	empty := checkpoint{Allocations: allocations{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, fmt.Errorf("checkpoint of devices: %w", err)
	}
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return empty, unreadable(path, err)
	}
	if sum := checksum(e.Data); sum != e.Checksum {
		return empty, unreadable(path, errors.New("checksum does not match"))
	}
	c := empty
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return empty, unreadable(path, err)
	}
	if c.Allocations == nil {
		c.Allocations = allocations{}
	}
	return c, nil
}

func unreadable(path string, err error) error {
	return fmt.Errorf("checkpoint of devices %s: %w: stop the pods that use devices on this node, then remove the file", path, err)
}

// writeCheckpoint replaces the file as a whole, on disk when it returns.
func writeCheckpoint(path string, c checkpoint) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("checkpoint of devices: %w", err)
	}
	text, err := json.Marshal(envelope{Data: data, Checksum: checksum(data)})
	if err != nil {
		return fmt.Errorf("checkpoint of devices: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("checkpoint of devices: %w", err)
	}
	if err := renameio.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("checkpoint of devices: %w", err)
	}
	return nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
