package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (c *cli) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "See and choose among clusters", Args: exactly(0, "get-contexts, current-context, use-context or set-namespace"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	use := &cobra.Command{
		Use: "use-context NAME", Short: "Make a cluster the one that commands work with", Args: exactly(1, "the name of a context"),
		RunE: func(_ *cobra.Command, args []string) error { return c.useContext(args[0]) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			config, _, err := c.loadConfig()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return config.Names(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "get-contexts", Short: "List the clusters in the configuration file", Args: exactly(0, "no arguments"),
			RunE: func(*cobra.Command, []string) error { return c.getContexts() },
		},
		&cobra.Command{
			Use: "current-context", Short: "Print the name of the cluster that commands work with", Args: exactly(0, "no arguments"),
			RunE: func(*cobra.Command, []string) error {
				config, path, err := c.loadConfig()
				if err != nil {
					return err
				}
				if config.CurrentContext == "" {
					return fmt.Errorf("no context is current in %s: `trireme up` makes one, `trireme config use-context NAME` chooses one", path)
				}
				c.print("%s", config.CurrentContext)
				return nil
			},
		},
		use,
		&cobra.Command{
			Use: "set-namespace NAMESPACE", Short: "Choose the namespace that commands work in unless told otherwise", Args: exactly(1, "a namespace"),
			RunE: func(_ *cobra.Command, args []string) error { return c.setNamespace(args[0]) },
		},
	)
	return cmd
}

func (c *cli) getContexts() error {
	config, path, err := c.loadConfig()
	if err != nil {
		return err
	}
	if len(config.Contexts) == 0 {
		c.say("No contexts in %s: `trireme up` makes one", path)
		return nil
	}
	lines := [][]string{{"CURRENT", "NAME", "SERVER", "NAMESPACE"}}
	for _, name := range config.Names() {
		current := ""
		if name == config.CurrentContext {
			current = "*"
		}
		lines = append(lines, []string{current, name, config.Contexts[name].Server, config.Contexts[name].Namespace})
	}
	return (&rows{out: c.Out}).write(lines...)
}

func (c *cli) useContext(name string) error {
	config, path, err := c.loadConfig()
	if err != nil {
		return err
	}
	if _, err := config.Get(name); err != nil {
		return fmt.Errorf("%w (in %s)", err, path)
	}
	config.CurrentContext = name
	if err := config.Save(path); err != nil {
		return err
	}
	c.print("Switched to context %q.", name)
	return nil
}

func (c *cli) setNamespace(namespace string) error {
	config, path, err := c.loadConfig()
	if err != nil {
		return err
	}
	name := c.contextName
	if name == "" {
		name = config.CurrentContext
	}
	if _, err := config.Get(name); err != nil {
		return fmt.Errorf("%w (in %s)", err, path)
	}
	context := config.Contexts[name]
	context.Namespace = namespace
	config.Contexts[name] = context
	if err := config.Save(path); err != nil {
		return err
	}
	c.print("Context %q now works in namespace %s.", name, namespace)
	return nil
}
