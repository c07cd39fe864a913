package cli

import (
	"context"
	"fmt"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/manifest"
	"trireme.dev/kit/daemon"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func (c *cli) diffCommand() *cobra.Command {
	var (
		s      selection
		f      applyFlags
		owners bool
	)
	cmd := &cobra.Command{
		Use:   "diff -f FILE...",
		Short: "Show what apply would change",
		Long: `Show what apply would change, as a unified diff of what there is and what there would be. The gateway is asked, with a
dry run: defaults and the fields of others are in it. Values of secrets are not shown.

Exit code 0: nothing would change. 1: something would. 2 and above: it cannot be told.`,
		Example: `  trireme diff -f web.yaml
  trireme diff -f web.yaml || trireme apply -f web.yaml`,
		Args: exactly(0, "manifests with -f"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			if len(s.files) == 0 {
				return usage("name the manifests with -f")
			}
			if err := f.check(); err != nil {
				return err
			}
			differs, err := c.diff(ctx, &s, &f, owners)
			switch {
			case err != nil:
				return &daemon.ExitError{Code: 2, Err: c.readable(err)}
			case differs:
				return &daemon.ExitError{Code: 1}
			}
			return nil
		}),
	}
	cmd.Flags().StringArrayVarP(&s.files, "filename", "f", nil, "`FILE`, folder or - to compare (repeatable)")
	cmd.Flags().BoolVarP(&s.recursive, "recursive", "R", false, "read the folders inside folders too")
	cmd.Flags().BoolVar(&owners, "show-managed-fields", false, "show what would change in who owns which field")
	f.add(cmd)
	return cmd
}

// diff prints the differences and reports whether there are any.
func (c *cli) diff(ctx context.Context, s *selection, f *applyFlags, owners bool) (bool, error) {
	docs, err := c.documents(s.files, s.recursive)
	if err != nil {
		return false, err
	}
	if _, err := targetsOf(docs); err != nil {
		return false, err
	}
	manifest.NeededFirst(docs)
	differs := false
	var errs []error
	for _, d := range docs {
		after, before, _, err := c.applyOne(ctx, d, f, true)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.Source, err))
			continue
		}
		if before == nil {
			// What the gateway makes up anew each time is no difference to look at.
			after.GetMetadata().Uid, after.GetMetadata().CreationTimestamp, after.GetMetadata().ResourceVersion = "", nil, ""
		}
		text, err := difference(d, before, after, owners)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(text) > 0 {
			differs = true
			if _, err := c.Out.Write(text); err != nil {
				return differs, err
			}
		}
	}
	return differs, c.failures(errs)
}

// difference compares two versions of an object as YAML; the first may be nil.
func difference(d manifest.Document, before, after client.Object, owners bool) ([]byte, error) {
	name := located{d.Kind, after}.String()
	if !owners {
		after = withoutOwners(after)
		if before != nil {
			before = withoutOwners(before)
		}
	}
	if new, ok := after.(*corev1.Secret); ok {
		old, _ := before.(*corev1.Secret)
		before, after = masked(old, new)
	}
	var from []byte
	to, err := manifest.EncodeYAML(d.Kind, after)
	if err == nil && before != nil {
		from, err = manifest.EncodeYAML(d.Kind, before)
	}
	if err != nil {
		return nil, err
	}
	return diff.Diff(name+" (live)", from, name+" (applied)", to), nil
}

// masked hides the values of a secret, and keeps in sight which of them differ. They stand as text: as data they would be
// stars in base64.
func masked(before, after *corev1.Secret) (client.Object, client.Object) {
	hide := func(s, other *corev1.Secret, when string) client.Object {
		if s == nil {
			return nil
		}
		shown, _ := proto.Clone(s).(*corev1.Secret)
		shown.Data, shown.StringData = nil, map[string]string{}
		for key, value := range s.GetData() {
			shown.StringData[key] = "***"
			if theirs, ok := other.GetData()[key]; ok && string(theirs) != string(value) {
				shown.StringData[key] = "*** (" + when + ")"
			}
		}
		return shown
	}
	return hide(before, after, "before"), hide(after, before, "after")
}
