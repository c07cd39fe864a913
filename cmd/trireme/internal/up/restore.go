package up

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"trireme.dev/services/apiserver"
)

func restoreCommand() *cobra.Command {
	var stateDir string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Bring the objects of a backup back into a stopped cluster",
		Long: `Bring the objects of a backup back: the embedded etcd of the state directory is made anew from FILE, whose checksum must
be right. The cluster must be stopped. What the directory held is kept beside it. With the next up there are the objects of
the backup and no others, and pods are started or ended accordingly.`,
		Example: "  trireme down; trireme restore cluster.snapshot; trireme up",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return restore(args[0], stateDir, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "`directory` of the cluster's state (default as for up)")
	return cmd
}

func restore(file, stateDir string, stdout io.Writer) error {
	if _, err := os.Stat(file); err != nil {
		return err
	}
	l, err := newLayout(stateDir)
	if err != nil {
		return err
	}
	// A machine that lost its disk has no state directory yet.
	if err := l.create(); err != nil {
		return err
	}
	release, err := takeLock(l.lock())
	if errors.Is(err, errLocked) {
		return fmt.Errorf("a cluster runs on %s: stop it first (trireme down)", l.dir)
	}
	if err != nil {
		return err
	}
	defer release()
	done, err := apiserver.Restore(file, l.path("etcd"))
	if err != nil {
		return err
	}
	kept := ""
	if done.Kept != "" {
		kept = fmt.Sprintf("; what was there is in %s", done.Kept)
	}
	_, err = fmt.Fprintf(stdout, "restored %d keys into %s, revision %d%s\n", done.Keys, l.path("etcd"), done.Revision, kept)
	return err
}
