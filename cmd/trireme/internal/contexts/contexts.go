// Package contexts owns the CLI's configuration file: named ways to reach a gateway, one of them current.
// `trireme up` writes its cluster into it, every other command reads it. It never connects.
package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"trireme.dev/kit/rpc"
)

// EnvVar names the variable that replaces the default path of the file.
const EnvVar = "TRIREME_CONFIG"

// Config is the file's content.
type Config struct {
	// CurrentContext is the name of the context that commands use unless told otherwise.
	CurrentContext string `yaml:"currentContext,omitempty"`
	// Contexts by name.
	Contexts map[string]Context `yaml:"contexts,omitempty"`

	// dir holds the file. Paths in it that are not absolute begin there.
	dir string
}

// Context says how to reach one cluster.
type Context struct {
	// Server is the gateway's address: unix:///path, host:port, or several host:port with commas.
	Server string `yaml:"server"`
	// CertFile, KeyFile and CAFile are needed for host:port. In the file they may be relative to its folder.
	CertFile string `yaml:"certFile,omitempty"`
	KeyFile  string `yaml:"keyFile,omitempty"`
	CAFile   string `yaml:"caFile,omitempty"`
	// ServerName is the name expected in the gateway's certificate where it differs from the host.
	ServerName string `yaml:"serverName,omitempty"`
	// InsecureTCP dials host:port without TLS.
	InsecureTCP bool `yaml:"insecureTCP,omitempty"`
	// Namespace that commands use unless told otherwise; "default" when empty.
	Namespace string `yaml:"namespace,omitempty"`
	// StateDir is the state directory of the `trireme up` that wrote this context; empty for contexts
	// made by hand.
	StateDir string `yaml:"stateDir,omitempty"`
	// Traces is the address of the Jaeger query API or of up's trace store.
	Traces string `yaml:"traces,omitempty"`
}

// Client is the context as kit/rpc dials it.
func (c Context) Client() rpc.ClientConfig {
	return rpc.ClientConfig{
		Address: c.Server, CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile,
		ServerName: c.ServerName, InsecureTCP: c.InsecureTCP,
	}
}

// Path is where the file is: $TRIREME_CONFIG, or trireme/config.yaml in $XDG_CONFIG_HOME or ~/.config.
func Path() (string, error) {
	if p := os.Getenv(EnvVar); p != "" {
		return p, nil
	}
	if d := os.Getenv("XDG_CONFIG_HOME"); d != "" {
		return filepath.Join(d, "trireme", "config.yaml"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration file: %w (set $%s)", err, EnvVar)
	}
	return filepath.Join(home, ".config", "trireme", "config.yaml"), nil
}

// Load reads the file. One that does not exist is an empty Config.
func Load(path string) (*Config, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Config{Contexts: map[string]Context{}, dir: filepath.Dir(path)}, nil
	}
	if err != nil {
		return nil, err
	}
	c := &Config{dir: filepath.Dir(path)}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	// What we do not know we could not write back.
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.Contexts == nil {
		c.Contexts = map[string]Context{}
	}
	return c, nil
}

// Save replaces the file as a whole, with mode 0600.
func (c *Config) Save(path string) error {
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(c), enc.Close()); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".config-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(buf.Bytes()); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Get returns the named context, or the current one when name is empty.
func (c *Config) Get(name string) (Context, error) {
	if name == "" {
		name = c.CurrentContext
	}
	if name == "" {
		return Context{}, errors.New("no cluster is configured: start one with `trireme up`, or name one with --server")
	}
	ctx, ok := c.Contexts[name]
	if !ok {
		return Context{}, fmt.Errorf("no context %q; there are: %s", name, strings.Join(c.Names(), ", "))
	}
	for _, file := range []*string{&ctx.CertFile, &ctx.KeyFile, &ctx.CAFile} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(c.dir, *file)
		}
	}
	return ctx, nil
}

// Names lists all contexts in order.
func (c *Config) Names() []string {
	names := make([]string, 0, len(c.Contexts))
	for n := range c.Contexts {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// PutCluster enters the cluster of ctx.StateDir and makes it current. Its context keeps the name and the
// namespace that it had; a new one is called name, or name-2 and so on where that belongs to another cluster.
// It returns the name.
func (c *Config) PutCluster(name string, ctx Context) string {
	if existing, ok := c.cluster(ctx.StateDir); ok {
		name = existing
		ctx.Namespace = c.Contexts[existing].Namespace
	} else {
		base := name
		for i := 2; ; i++ {
			if _, taken := c.Contexts[name]; !taken {
				break
			}
			name = fmt.Sprintf("%s-%d", base, i)
		}
	}
	c.Contexts[name] = ctx
	c.CurrentContext = name
	return name
}

// RemoveCluster forgets the cluster of stateDir and reports whether there was one.
func (c *Config) RemoveCluster(stateDir string) bool {
	name, ok := c.cluster(stateDir)
	if !ok {
		return false
	}
	delete(c.Contexts, name)
	if c.CurrentContext == name {
		c.CurrentContext = ""
	}
	return true
}

func (c *Config) cluster(stateDir string) (string, bool) {
	for _, name := range c.Names() {
		if c.Contexts[name].StateDir == stateDir {
			return name, true
		}
	}
	return "", false
}
