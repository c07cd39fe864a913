// Package cli is the commands by which people work with a cluster: get, apply, logs and the like, with kubectl's habits.
// Kinds come from descriptors, so that a new kind works in every generic command by itself.
//
// It owns no state but the files that package contexts keeps, decides nothing that the gateway decides, and starts no
// process but an editor. In the chain from apply to Running it is the first step: manifest to gateway.
package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Deps are what the commands work with.
type Deps struct {
	// In, Out and Err are the streams; terminals are recognised among them.
	In       io.Reader
	Out, Err io.Writer
	// Dial connects to the gateway of a context.
	Dial func(contexts.Context) (*grpc.ClientConn, error)
	// Version of this program.
	Version string
	// Node are further commands of `trireme node`, which need no gateway to begin with.
	Node []*cobra.Command
}

// Dial connects as a context says.
func Dial(c contexts.Context) (*grpc.ClientConn, error) { return rpc.Dial(c.Client()) }

// fieldManager names this program as the owner of what it applies. What other commands write is owned by
// trireme-create, trireme-edit and so on, so that a conflict says what was done.
const fieldManager = "trireme"

// cli is one run of one command.
type cli struct {
	Deps
	registry *kind.Registry

	// Flags that every command has.
	configPath, contextName, server, namespace string

	// Set by connect.
	context contexts.Context
	conn    *grpc.ClientConn
	warned  map[string]bool
	command string
}

// AddTo adds the commands to a root command, under headings of their own.
func AddTo(root *cobra.Command, deps Deps) {
	c := &cli{Deps: deps, registry: kind.Builtin(), warned: map[string]bool{}}
	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, cmd := range commands {
			cmd.GroupID = id
			c.addFlags(cmd)
		}
		root.AddCommand(commands...)
	}
	group("objects", "Work with objects:",
		c.getCommand(), c.describeCommand(), c.createCommand(), c.runCommand(), c.applyCommand(), c.deleteCommand(),
		c.diffCommand(), c.planCommand(), c.editCommand(), c.labelCommand(), c.annotateCommand(), c.scaleCommand(), c.rolloutCommand(), c.waitCommand(),
		c.eventsCommand())
	group("pods", "Look into pods:",
		c.logsCommand(), c.execCommand(), c.copyCommand(), c.portForwardCommand(), c.traceCommand(), c.whyCommand())
	group("nodes", "Look after nodes:",
		c.cordonCommand(true), c.cordonCommand(false), c.drainCommand(), c.taintCommand(), c.imageCommand(), c.tokenCommand())
	// Its commands differ in how they reach a gateway, so they have their flags each.
	node := c.nodeCommand(deps.Node...)
	node.GroupID = "nodes"
	root.AddCommand(node)
	group("care", "Look after the cluster:",
		c.statusCommand(), c.backupCommand(), c.defragmentCommand(), c.migrateStorageCommand())
	group("about", "Find your way:",
		c.versionCommand(), c.clusterInfoCommand(), c.configCommand(), c.authCommand(), c.apiResourcesCommand(),
		c.explainCommand())
	usageErrors(root)
}

// usageErrors makes mistakes in the command line exit with 2, everywhere below root.
func usageErrors(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w\nSee '%s --help'.", err, cmd.CommandPath())
	})
	root.SuggestionsMinimumDistance = max(2, root.SuggestionsMinimumDistance)
	if root.Args == nil && root.Run == nil && root.RunE == nil {
		root.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := fmt.Sprintf("See '%s --help'.", cmd.CommandPath())
			if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
				hint = fmt.Sprintf("Did you mean %s?", strings.Join(similar, " or "))
			}
			return usage("unknown command %q. %s", args[0], hint)
		}
		root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
}

func (c *cli) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVarP(&c.namespace, "namespace", "n", "", "`namespace` to work in (default: that of the context)")
	flags.StringVar(&c.contextName, "context", "", "`name` of the cluster in the configuration file (default: the current one)")
	flags.StringVar(&c.server, "server", "", "`address` of the gateway, unix:///path, host:port or several host:port with commas, instead of that of the context")
	flags.StringVar(&c.configPath, "config", "", "configuration `file` (default $TRIREME_CONFIG or ~/.config/trireme/config.yaml)")
	c.complete(cmd, "namespace", func(ctx context.Context) []string { return c.namesOf(ctx, "namespaces") })
	c.complete(cmd, "context", func(context.Context) []string {
		config, _, err := c.loadConfig()
		if err != nil {
			return nil
		}
		return config.Names()
	})
}

// online makes a function that needs the gateway the body of a command.
func (c *cli) online(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		if err := c.connect(); err != nil {
			return err
		}
		c.command = cmd.Name()
		defer func() { _ = c.conn.Close() }()
		return c.readable(run(cmd.Context(), args))
	}
}

func (c *cli) loadConfig() (*contexts.Config, string, error) {
	path := c.configPath
	if path == "" {
		var err error
		if path, err = contexts.Path(); err != nil {
			return nil, "", err
		}
	}
	config, err := contexts.Load(path)
	if err != nil {
		return nil, "", fmt.Errorf("read the configuration: %w", err)
	}
	return config, path, nil
}

// connect finds the cluster; the connection itself is made by the first call.
func (c *cli) connect() error {
	config, path, err := c.loadConfig()
	if err != nil {
		return err
	}
	found, err := config.Get(c.contextName)
	switch {
	case err == nil:
	case c.server != "" && c.contextName == "":
		found = contexts.Context{}
	case c.contextName != "":
		return fmt.Errorf("%w (in %s)", err, path)
	default:
		return fmt.Errorf("%w (looked in %s)", err, path)
	}
	if c.server != "" {
		found.Server = c.server
	}
	c.context = found
	c.conn, err = c.Dial(found)
	return err
}

// ns is the namespace that commands work in.
func (c *cli) ns() string {
	switch {
	case c.namespace != "":
		return c.namespace
	case c.context.Namespace != "":
		return c.context.Namespace
	}
	return "default"
}

// nsFor is the namespace to find objects of a kind in: none where the kind has none.
func (c *cli) nsFor(k *kind.Kind) string {
	if !k.Namespaced {
		return ""
	}
	return c.ns()
}

// resource is the client of a kind.
func (c *cli) resource(k *kind.Kind) *client.Resource[client.Object] {
	return client.Dynamic(c.conn, k).OnWarning(func(w string) { c.warn("", w) })
}

// writer is the client of a kind for writes.
func (c *cli) writer(k *kind.Kind, dryRun bool) *client.Resource[client.Object] {
	return c.resource(k).With(&metav1.WriteOptions{DryRun: dryRun, FieldManager: c.manager()})
}

// manager is the owner of what the command writes.
func (c *cli) manager() string { return fieldManager + "-" + c.command }

// warn prints a warning once.
func (c *cli) warn(where, text string) {
	if c.warned[where+text] || c.warned[text] {
		return
	}
	c.warned[where+text], c.warned[text] = true, true
	label := "Warning:"
	if isColourful(c.Err) {
		label = "\x1b[33m" + label + "\x1b[0m"
	}
	if where != "" {
		where += ": "
	}
	c.say("%s %s%s", label, where, text)
}

// say tells people something that is not the command's output.
func (c *cli) say(format string, args ...any) { fmt.Fprintf(c.Err, format+"\n", args...) }

// print writes a line of output.
func (c *cli) print(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

// failures reports what went wrong with single objects after the rest is done; nil where nothing did.
func (c *cli) failures(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	for _, err := range errs {
		c.say("error: %v", c.readable(err))
	}
	return &daemon.ExitError{Code: 1}
}

// usage is an error of the command line.
func usage(format string, args ...any) error {
	return &daemon.ExitError{Code: 2, Err: fmt.Errorf(format, args...)}
}

// exactly checks the number of arguments; what says what they are.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("%s takes %s, got %d argument(s)\nSee '%s --help'.", cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// atLeast checks that there are arguments.
func atLeast(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return usage("%s takes %s\nSee '%s --help'.", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

// bounded gives a context that ends after a timeout; zero means never.
func bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}
