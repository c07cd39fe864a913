package deviced

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/yaml"
)

// NVIDIAResource is the resource under which NVIDIA GPUs, real and simulated, are offered.
const NVIDIAResource = "nvidia.com/gpu"

// visibleDevices tells a container its GPUs, as NVIDIA's own container tools do.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// Config is what an operator sets.
type Config struct {
	// Socket of deviced's own service; empty for none.
	Socket string
	// PluginDirs are the folders of device plugins to serve: DIR, or NAME=DIR where a machine has several nodes, whose
	// name then is part of the IDs of simulated devices.
	PluginDirs []string
	// NVIDIA offers the GPUs that the NVIDIA driver shows, as nvidia.com/gpu.
	NVIDIA bool
	// SimulatedGPUs offers this many pretended GPUs per folder as nvidia.com/gpu. Not together with NVIDIA.
	SimulatedGPUs int
	// SimulatedNUMANodes spreads the simulated GPUs over NUMA nodes; 0 means no topology.
	SimulatedNUMANodes int
	// ResourcesFile names a YAML file of further resources; see Resources.
	ResourcesFile string
}

// Resources is the content of Config.ResourcesFile.
type Resources struct {
	// Resources to offer.
	Resources []Resource `json:"resources"`
}

// Resource is a resource whose devices are found by path.
type Resource struct {
	// Name as pods request it: example.com/fpga.
	Name string `json:"name"`
	// Paths are patterns of device nodes: /dev/fpga*.
	Paths []string `json:"paths"`
	// Env is a variable that tells a container its devices by ID, comma-separated; empty for none.
	Env string `json:"env"`
}

// AddFlags registers the flags of all fields.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Socket, "socket", c.Socket, "unix `socket` of deviced's own service")
	fs.StringArrayVar(&c.PluginDirs, "plugin-dir", c.PluginDirs, "`[NAME=]DIR` of device plugins to serve; may be repeated")
	fs.BoolVar(&c.NVIDIA, "nvidia", c.NVIDIA, "offer the GPUs that the NVIDIA driver shows")
	fs.IntVar(&c.SimulatedGPUs, "simulated-gpus", c.SimulatedGPUs, "offer `N` simulated GPUs per node")
	fs.IntVar(&c.SimulatedNUMANodes, "simulated-numa-nodes", c.SimulatedNUMANodes, "spread simulated GPUs over `N` NUMA nodes")
	fs.StringVar(&c.ResourcesFile, "resources", c.ResourcesFile, "YAML `file` of resources found by path")
}

// Validate names all that is wrong.
func (c *Config) Validate() error {
	var errs []error
	if len(c.PluginDirs) == 0 {
		errs = append(errs, errors.New("--plugin-dir: at least one is needed"))
	}
	for _, entry := range c.PluginDirs {
		if _, dir := splitDir(entry); !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("--plugin-dir %s: want an absolute path", entry))
		}
	}
	if c.SimulatedGPUs < 0 || c.SimulatedNUMANodes < 0 {
		errs = append(errs, errors.New("--simulated-gpus and --simulated-numa-nodes: want 0 or more"))
	}
	if c.NVIDIA && c.SimulatedGPUs > 0 {
		errs = append(errs, fmt.Errorf("--nvidia and --simulated-gpus both offer %s: choose one", NVIDIAResource))
	}
	return errors.Join(errs...)
}

// splitDir splits an entry of PluginDirs.
func splitDir(entry string) (name, dir string) {
	if name, dir, ok := strings.Cut(entry, "="); ok {
		return name, dir
	}
	return "", entry
}

// readResources reads Config.ResourcesFile strictly.
func readResources(path string) ([]Resource, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	var file Resources
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("resources %s: %w", path, err)
	}
	var errs []error
	seen := map[string]bool{NVIDIAResource: true}
	for i, r := range file.Resources {
		field := fmt.Sprintf("%s: resources[%d]", path, i)
		if !strings.Contains(r.Name, "/") || len(content.IsLabelKey(r.Name)) > 0 {
			errs = append(errs, fmt.Errorf("%s.name: %q: want a domain and a name: example.com/fpga", field, r.Name))
		}
		if seen[r.Name] {
			errs = append(errs, fmt.Errorf("%s.name: %s is offered already", field, r.Name))
		}
		seen[r.Name] = true
		if len(r.Paths) == 0 {
			errs = append(errs, fmt.Errorf("%s.paths: want at least one pattern", field))
		}
	}
	return file.Resources, errors.Join(errs...)
}
