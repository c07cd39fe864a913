package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	"trireme.dev/client/strategic"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func (c *cli) editCommand() *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "edit (TYPE NAME... | TYPE/NAME...)",
		Short: "Change objects in an editor ($TRIREME_EDITOR, $VISUAL, $EDITOR or vi)",
		RunE: c.online(func(ctx context.Context, args []string) error {
			targets, err := c.chosen(&s, args, false)
			if err != nil {
				return err
			}
			found, errs := c.fetch(ctx, &s, targets)
			for _, l := range found {
				l.object = withoutOwners(l.object)
				if err := c.edit(ctx, l); err != nil {
					errs = append(errs, err)
				}
			}
			return c.failures(errs)
		}),
	}
	cmd.ValidArgsFunction = c.completeTargets
	return cmd
}

// editHelp stands at the top of what is edited.
const editHelp = `# Change what is below; lines that begin with # are ignored, and leaving it as it is cancels.
`

// edit opens one object until it is stored, or given up by leaving the text unchanged.
func (c *cli) edit(ctx context.Context, l located) error {
	text, err := manifest.EncodeYAML(l.kind, l.object)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "trireme-edit-*.yaml")
	if err != nil {
		return err
	}
	name := file.Name()
	if err := file.Close(); err != nil {
		return err
	}
	keep := false
	defer func() {
		if keep {
			c.say("Your text is kept in %s", name)
		} else {
			_ = os.Remove(name) // a leftover in the temporary folder harms nobody
		}
	}()
	complaint, last := "", error(nil)
	for {
		if err := os.WriteFile(name, []byte(editHelp+complaint+string(text)), 0o600); err != nil {
			return err
		}
		if err := c.openEditor(ctx, name); err != nil {
			keep = complaint != ""
			return err
		}
		edited, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		edited = withoutComments(edited)
		if bytes.Equal(edited, withoutComments(text)) || len(bytes.TrimSpace(edited)) == 0 {
			if keep = complaint != ""; keep {
				return fmt.Errorf("%s was not changed, the text was left as it is: %w", l, last)
			}
			c.say("Edit cancelled, no changes made.")
			return nil
		}
		err = c.storeEdited(ctx, l, edited)
		if err == nil {
			return nil
		}
		var wrong manifest.Errors
		if !errors.As(err, &wrong) && !apierr.IsInvalid(err) {
			keep = true
			return err
		}
		text, complaint, last = edited, comment(err), err
	}
}

// storeEdited writes an edited text. What others changed meanwhile stays, unless the edit changes it too.
func (c *cli) storeEdited(ctx context.Context, l located, text []byte) error {
	docs, err := manifest.Decode(c.registry, "", bytes.NewReader(text))
	if err != nil {
		return err
	}
	meta := l.object.GetMetadata()
	if len(docs) != 1 || docs[0].Kind != l.kind || docs[0].Object.GetMetadata().GetName() != meta.GetName() ||
		docs[0].Object.GetMetadata().GetNamespace() != meta.GetNamespace() {
		return apierr.BadRequest(fmt.Sprintf("kind, name and namespace must stay as they are: this is %s", l))
	}
	before, err := manifest.ToJSON(l.object)
	if err != nil {
		return err
	}
	after, err := manifest.ToJSON(docs[0].Object)
	if err != nil {
		return err
	}
	patch, err := strategic.Diff(l.kind.Message.Descriptor(), before, after)
	if err != nil {
		return err
	}
	if string(patch) == "{}" {
		c.print("%s unchanged", l)
		return nil
	}
	_, err = c.writer(l.kind, false).Patch(ctx, meta.GetNamespace(), meta.GetName(), metav1.PatchType_PATCH_TYPE_STRATEGIC_MERGE, patch, "")
	if err == nil {
		c.print("%s edited", l)
	}
	return err
}

func (c *cli) openEditor(ctx context.Context, file string) error {
	editor := "vi"
	for _, name := range []string{"EDITOR", "VISUAL", "TRIREME_EDITOR"} {
		if value := os.Getenv(name); value != "" {
			editor = value
		}
	}
	// Editors come with arguments of their own, so the shell reads the line.
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "edit", file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.In, c.Out, c.Err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("editor %q: %w; $EDITOR names another", editor, err)
	}
	return nil
}

// withoutComments drops the lines that begin with #.
func withoutComments(text []byte) []byte {
	var kept [][]byte
	for _, line := range bytes.SplitAfter(text, []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("#")) {
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, nil)
}

func comment(err error) string {
	return "#\n# " + strings.ReplaceAll(err.Error(), "\n", "\n# ") + "\n#\n"
}
