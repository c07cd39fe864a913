package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trireme.dev/client"
)

// completionTime bounds how long a TAB may take.
const completionTime = 2 * time.Second

// complete offers words for a flag.
func (c *cli) complete(cmd *cobra.Command, flag string, words func(context.Context) []string) {
	register(cmd, flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		return words(ctx), cobra.ShellCompDirectiveNoFileComp
	})
}

func (c *cli) completeWords(cmd *cobra.Command, flag string, words ...string) {
	register(cmd, flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	})
}

func register(cmd *cobra.Command, flag string, words cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, words); err != nil {
		panic(err) // the flag is not registered: a programming error
	}
}

// namesOf lists the names of a kind's objects in the namespace, for completion: whatever goes wrong, there is just
// nothing to offer.
func (c *cli) namesOf(ctx context.Context, word string) []string {
	kinds, err := c.resolve(word)
	if err != nil {
		return nil
	}
	if err := c.connect(); err != nil {
		return nil
	}
	defer func() { _ = c.conn.Close() }()
	var names []string
	for _, k := range kinds {
		list, err := c.resource(k).List(ctx, client.ListOptions{Namespace: c.nsFor(k), Limit: 500})
		if err != nil {
			return nil
		}
		for _, o := range list.Items {
			names = append(names, o.GetMetadata().GetName())
		}
	}
	return names
}

// completeTargets offers kinds, then names, in both ways of writing them.
func (c *cli) completeTargets(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	if word, _, slash := strings.Cut(typed, "/"); slash {
		names := c.namesOf(ctx, word)
		for i := range names {
			names[i] = word + "/" + names[i]
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	if len(args) > 0 {
		if strings.Contains(args[0], "/") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := slices.DeleteFunc(c.namesOf(ctx, args[0]), func(n string) bool { return slices.Contains(args[1:], n) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return c.kindWords(typed), cobra.ShellCompDirectiveNoFileComp
}

// kindWords are the plurals, behind those that stand before a comma already.
func (c *cli) kindWords(typed string) []string {
	before := typed[:strings.LastIndex(typed, ",")+1]
	var words []string
	for _, k := range c.registry.All() {
		if word := before + k.Plural; strings.HasPrefix(word, typed) {
			words = append(words, word)
		}
	}
	return words
}

// completePods offers the names of pods, once.
func (c *cli) completePods(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if strings.Contains(typed, "/") {
		return c.completeTargets(cmd, args, typed)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	return c.namesOf(ctx, "pods"), cobra.ShellCompDirectiveNoFileComp
}

// completeNodes offers the names of nodes.
func (c *cli) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	names := slices.DeleteFunc(c.namesOf(ctx, "nodes"), func(n string) bool { return slices.Contains(args, n) })
	return names, cobra.ShellCompDirectiveNoFileComp
}
