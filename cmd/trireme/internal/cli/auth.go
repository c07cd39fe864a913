package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/daemon"
	authorizationv1 "trireme.dev/proto/gen/trireme/authorization/v1"
)

func (c *cli) authCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "auth", Short: "Find out what you may do",
		Args: exactly(0, "a command: can-i"), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.canICommand())
	return cmd
}

func (c *cli) canICommand() *cobra.Command {
	var (
		subresource     string
		fields          string
		everywhere, mum bool
	)
	cmd := &cobra.Command{
		Use: "can-i VERB TYPE[/NAME]", Short: "Say whether you may do something, and why not",
		Long: `Ask the gateway whether it would let you do something: it prints yes, or no with the reason, and exits with 1 where it is
no. Verbs are get, list, watch, create, update, patch, delete, deletecollection; "*" stands for all of them, and for all
types. The answer is about permissions alone: the object may still be refused for what it says.`,
		Example: `  trireme auth can-i create pods
  trireme auth can-i get secret/token -n team-a
  trireme auth can-i get pods --subresource log
  trireme auth can-i '*' '*' -A`,
		Args: exactly(2, "a verb and a type, such as: create pods"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			req := &authorizationv1.SelfSubjectAccessReviewRequest{
				Verb: strings.ToLower(args[0]), Subresource: subresource, FieldSelector: fields,
			}
			if err := c.aim(req, args[1], everywhere); err != nil {
				return err
			}
			resp, err := authorizationv1.NewAccessReviewServiceClient(c.conn).SelfSubjectAccessReview(ctx, req)
			switch {
			case err != nil:
				return apierr.FromStatus(err)
			case !resp.GetAllowed():
				if !mum {
					c.print("no - %s", resp.GetReason())
				}
				return &daemon.ExitError{Code: 1}
			case !mum:
				c.print("yes")
			}
			return nil
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&subresource, "subresource", "", "`part` of the object: status, scale, log, exec and so on")
	flags.StringVar(&fields, "field-selector", "", "`selector` of a list or watch, such as spec.nodeName=a")
	flags.BoolVarP(&everywhere, "all-namespaces", "A", false, "in every namespace")
	flags.BoolVarP(&mum, "quiet", "q", false, "print nothing: the exit code says it")
	return cmd
}

// aim puts into a question what TYPE or TYPE/NAME stands for.
func (c *cli) aim(req *authorizationv1.SelfSubjectAccessReviewRequest, what string, everywhere bool) error {
	word, name, named := strings.Cut(what, "/")
	if word == "" || named && (name == "" || strings.Contains(name, "/")) {
		return usage("%q: want TYPE or TYPE/NAME, such as pods or pod/web; --subresource is for pods/log and the like", what)
	}
	req.Name = name
	if word == "*" {
		req.Resource = word
		if !everywhere {
			req.Namespace = c.ns()
		}
		return nil
	}
	k, err := c.one(word)
	if err != nil {
		return &daemon.ExitError{Code: 2, Err: err} // 1 means no
	}
	if named && everywhere && k.Namespaced {
		return usage("a %s has a name in one namespace: -A does not go with it", k.Name)
	}
	req.Resource = k.Plural
	if group, _, ok := strings.Cut(k.APIVersion(), "/"); ok {
		req.Group = group
	}
	if !everywhere {
		req.Namespace = c.nsFor(k)
	}
	return nil
}
