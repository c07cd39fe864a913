package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trireme.dev/client/jointoken"
	"trireme.dev/cmd/trireme/internal/join"
)

func (c *cli) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Make and revoke the tokens by which machines join the cluster", Args: exactly(0, "create, list or delete"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.tokenCreateCommand(), c.tokenListCommand(), c.tokenDeleteCommand())
	return cmd
}

func (c *cli) tokenCreateCommand() *cobra.Command {
	ttl := jointoken.DefaultTTL
	var description string
	var printLine bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token and print it",
		Long: `Make a token and print it: ID.SECRET.PIN, to be carried to a machine whole. PIN names this cluster's CA, so that the machine
shows the token to no other gateway. ID.SECRET is kept as Secret kube-system/bootstrap-token-ID, laid out as Kubernetes' are.`,
		Example: `  trireme token create
  trireme token create --ttl 1h --description "rack 7" --print-join-command`,
		Args: exactly(0, "no arguments"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			if ttl < 0 {
				return usage("--ttl %s: want more than zero, or 0 for a token that never ends", ttl)
			}
			created, err := join.Create(ctx, c.conn, ttl, description)
			if err != nil {
				return err
			}
			if printLine {
				c.print("%s", created.Line())
				return nil
			}
			c.print("%s", created.Token)
			return nil
		}),
	}
	cmd.Flags().DurationVar(&ttl, "ttl", ttl, "how long the token is good for; 0 for ever")
	cmd.Flags().StringVar(&description, "description", "", "what it is for, to be seen in lists")
	cmd.Flags().BoolVar(&printLine, "print-join-command", false, "print the whole line to run on the machine")
	return cmd
}

func (c *cli) tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List tokens, without their secrets", Args: exactly(0, "no arguments"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			tokens, err := join.List(ctx, c.conn)
			if err != nil {
				return err
			}
			if len(tokens) == 0 {
				c.say("No tokens: `trireme token create` makes one.")
				return nil
			}
			slices.SortFunc(tokens, sooner)
			lines := [][]string{{"ID", "ENDS", "DESCRIPTION"}}
			for _, t := range tokens {
				ends := "never"
				if left := time.Until(t.Expires); t.Expired(time.Now()) {
					ends = "expired"
				} else if !t.Expires.IsZero() {
					ends = fmt.Sprintf("in %s", left.Round(time.Second))
				}
				description := t.Description
				if !t.Joins {
					description = strings.TrimSpace("(not for joining) " + description)
				}
				if description == "" {
					description = "<none>"
				}
				lines = append(lines, []string{t.ID, ends, description})
			}
			return (&rows{out: c.Out}).write(lines...)
		}),
	}
}

// sooner orders tokens by their end; those without one are last.
func sooner(a, b jointoken.Stored) int {
	if a.Expires.IsZero() != b.Expires.IsZero() {
		if a.Expires.IsZero() {
			return 1
		}
		return -1
	}
	return cmp.Or(a.Expires.Compare(b.Expires), strings.Compare(a.ID, b.ID))
}

func (c *cli) tokenDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete ID...", Short: "Revoke tokens; machines that joined by them stay", Args: atLeast(1, "the IDs of tokens"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			var errs []error
			for _, id := range args {
				// A whole token is taken too: it is what people have at hand.
				id, _, _ = strings.Cut(id, ".")
				if err := join.Delete(ctx, c.conn, id); err != nil {
					errs = append(errs, err)
					continue
				}
				c.print("token %s deleted", id)
			}
			return c.failures(errs)
		}),
	}
}
