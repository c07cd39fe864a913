// Package certs is `trireme pki`: the certificates of a cluster that `trireme up` does not run. It makes one folder per
// participant, which is all that this participant needs to see, and the CLI's configuration for people. It only writes
// files; kit/pki signs, kit/rpc checks.
package certs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/kit/pki"
)

// Config is what an operator sets.
type Config struct {
	// Dir receives all files. Required.
	Dir string
	// Hosts are the names and addresses by which the gateways are reached.
	Hosts []string
	// Nodes are NAME or NAME=HOST,...: the nodes, and by what else than their name their agents are reached.
	Nodes []string
	// Server is the gateway's address in config.yaml; empty for no such file. Traces is the address of the trace
	// store there, Context the context's name.
	Server, Traces, Context string
}

// Commands returns `trireme pki`.
func Commands() []*cobra.Command {
	root := &cobra.Command{
		Use:   "pki",
		Short: "Make the certificates of a cluster that `trireme up` does not run",
	}
	cfg := Config{Hosts: []string{"localhost", "127.0.0.1", "::1"}, Context: "trireme"}
	create := &cobra.Command{
		Use:   "init --dir DIR",
		Short: "Make a CA and a folder with certificate, key and CA for each participant",
		Long: `Make a CA and a folder with certificate, key and CA for each participant.

DIR/ca/ca.crt, ca.key            the CA; its key is needed again to add a node
DIR/NAME/tls.crt, tls.key, ca.crt  for apiserver, scheduler, controller, admin and every node
DIR/config.yaml                  with --server: how the CLI reaches the cluster as admin

To repeat it keeps what is there: the CA, and every certificate that still says what is asked for and has more than a third
of its life left. Run as root, it gives the folders and what people read (config.yaml, admin) to the owner of DIR.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cfg.Write(cmd.OutOrStdout()) },
	}
	flags := create.Flags()
	flags.StringVar(&cfg.Dir, "dir", cfg.Dir, "`folder` to write to")
	flags.StringSliceVar(&cfg.Hosts, "host", cfg.Hosts, "`names` and addresses by which the gateways are reached, comma-separated")
	flags.StringArrayVar(&cfg.Nodes, "node", cfg.Nodes, "`NAME[=HOST,...]` of a node, and by what else its agent is reached; may be repeated")
	flags.StringVar(&cfg.Server, "server", cfg.Server, "`address` of the gateway for config.yaml; several, comma-separated, where there are several gateways")
	flags.StringVar(&cfg.Traces, "traces", cfg.Traces, "`URL` of Jaeger's query API for config.yaml")
	flags.StringVar(&cfg.Context, "context-name", cfg.Context, "`name` of the cluster in config.yaml")
	root.AddCommand(create)
	return []*cobra.Command{root}
}

// participant has a folder of its own.
type participant struct {
	name string
	id   pki.Identity
	// people read the files, not a service.
	people bool
}

// Write makes what is missing or no longer right, and says in a line what there is.
func (c Config) Write(out io.Writer) error {
	all, err := c.participants()
	if err != nil {
		return err
	}
	w, err := newWriter(c.Dir)
	if err != nil {
		return c.explain(err)
	}
	ca, err := w.ca()
	if err != nil {
		return c.explain(err)
	}
	for _, p := range all {
		if err := w.issue(ca, p); err != nil {
			return c.explain(err)
		}
	}
	done := fmt.Sprintf("%s: CA and %d certificates", c.Dir, len(all))
	if c.Server != "" {
		if err := w.context(c); err != nil {
			return c.explain(err)
		}
		done += "; config.yaml for " + c.Server
	}
	fmt.Fprintln(out, done)
	return nil
}

// explain adds the way out to an error that people meet.
func (c Config) explain(err error) error {
	if errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "read-only file system") {
		return fmt.Errorf("%s is not writable for user %d: make it so (chmod u+w; no :ro on the mount), or name another folder: %w",
			c.Dir, os.Geteuid(), err)
	}
	return err
}

func (c Config) participants() ([]participant, error) {
	if c.Dir == "" {
		return nil, errors.New("--dir: a folder is needed")
	}
	gateway := pki.Identity{CommonName: "system:trireme-apiserver"}
	addHosts(&gateway, c.Hosts)
	all := []participant{
		{name: "apiserver", id: gateway},
		// It serves too, and gateways want that name of it.
		{name: "scheduler", id: pki.Identity{CommonName: "system:trireme-scheduler", DNSNames: []string{"system:trireme-scheduler"}}},
		{name: "controller", id: pki.Identity{CommonName: "system:trireme-controller"}},
		{name: "admin", id: pki.Identity{CommonName: "admin", Organizations: []string{"system:masters"}}, people: true},
	}
	taken := []string{"ca"}
	for _, p := range all {
		taken = append(taken, p.name)
	}
	for _, node := range c.Nodes {
		name, hosts, _ := strings.Cut(node, "=")
		if name == "" || name != filepath.Base(name) || slices.Contains(taken, name) {
			return nil, fmt.Errorf("--node %q: the name must be that of one node, and none of %s", node, strings.Join(taken, ", "))
		}
		taken = append(taken, name)
		id := pki.Identity{CommonName: "system:node:" + name, Organizations: []string{"system:nodes"}, DNSNames: []string{name}}
		if hosts != "" {
			addHosts(&id, strings.Split(hosts, ","))
		}
		all = append(all, participant{name: name, id: id})
	}
	return all, nil
}

func addHosts(id *pki.Identity, hosts []string) {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			id.IPs = append(id.IPs, ip)
		} else {
			id.DNSNames = append(id.DNSNames, h)
		}
	}
}

// writer writes below a folder whose owner is to be able to use and delete what is there.
type writer struct {
	dir      string
	uid, gid int
}

func newWriter(dir string) (*writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	uid, gid, err := owner(dir)
	if err != nil {
		return nil, err
	}
	return &writer{dir: dir, uid: uid, gid: gid}, nil
}

func (w *writer) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// give makes files the folder's owner's. Who is not root owns what he wrote.
func (w *writer) give(paths ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, p := range paths {
		if err := os.Lchown(p, w.uid, w.gid); err != nil {
			return err
		}
	}
	return nil
}

// folder is open to all: what is secret in it is secret by its own mode. A container engine may have made it
// meanwhile, as the source of a mount.
func (w *writer) folder(name string) error {
	if err := os.Mkdir(w.path(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return w.give(w.path(name))
}

func (w *writer) ca() (*pki.CA, error) {
	if err := w.folder("ca"); err != nil {
		return nil, err
	}
	return pki.Open(w.path("ca"))
}

// issue fills a participant's folder. A service's key stays its user's, which is the one that runs this: a service without
// privileges over others' files must be able to read it.
func (w *writer) issue(ca *pki.CA, p participant) error {
	if err := w.folder(p.name); err != nil {
		return err
	}
	files, err := ca.Issue(w.path(p.name), "tls", p.id)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(files.CA)
	if err != nil {
		return err
	}
	mine := w.path(p.name, "ca.crt")
	if err := writeFile(mine, authority, 0o644); err != nil {
		return err
	}
	if p.people {
		return w.give(files.Cert, files.Key, mine)
	}
	return nil
}

// context writes config.yaml, with paths relative to it: it is read at another place than where it is written, where a
// container does that.
func (w *writer) context(c Config) error {
	path := w.path("config.yaml")
	config, err := contexts.Load(path)
	if err != nil {
		return err
	}
	config.Contexts[c.Context] = contexts.Context{
		Server: c.Server, Traces: c.Traces, Namespace: config.Contexts[c.Context].Namespace,
		CertFile: "admin/tls.crt", KeyFile: "admin/tls.key", CAFile: "admin/ca.crt",
	}
	if config.CurrentContext == "" {
		config.CurrentContext = c.Context
	}
	if err := config.Save(path); err != nil {
		return err
	}
	return w.give(path)
}

// writeFile replaces a file as a whole. It opens none that is there already: in a folder of somebody else's that might be a
// link to anywhere.
func writeFile(path string, data []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
