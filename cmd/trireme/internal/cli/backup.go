package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"trireme.dev/client/apierr"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
)

func (c *cli) backupCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Write a snapshot of all objects to a file that restore takes",
		Long: `Write a snapshot of all objects to FILE, with its checksum verified. It holds every secret of the cluster: the file is
readable by you only. Certificates, images and volumes are not in it.`,
		Example: "  trireme backup cluster.snapshot\n  trireme restore cluster.snapshot --state-dir /var/lib/trireme   # with the cluster stopped",
		Args:    exactly(1, "the file to write"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			return c.backup(ctx, args[0], force)
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	return cmd
}

// backup writes beside the file and renames, so that the file is a whole snapshot or what it was before.
func (c *cli) backup(ctx context.Context, file string, force bool) (err error) {
	if _, err := os.Stat(file); err == nil && !force {
		return fmt.Errorf("%s exists already: --force replaces it", file)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	begun := time.Now()
	tmp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	written, revision, err := c.snapshot(ctx, tmp)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return err
	}
	c.print("%s: %s, everything up to revision %d, in %.1f s", file, size(written), revision, time.Since(begun).Seconds())
	return nil
}

// snapshot receives one and checks that it is whole.
func (c *cli) snapshot(ctx context.Context, w io.Writer) (written, revision int64, err error) {
	stream, err := componentv1.NewMaintenanceServiceClient(c.conn).Snapshot(ctx, &componentv1.SnapshotRequest{})
	if err != nil {
		return 0, 0, apierr.FromStatus(err)
	}
	sum := sha256.New()
	var want []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, 0, apierr.FromStatus(err)
		}
		switch p := part.GetPart().(type) {
		case *componentv1.SnapshotResponse_Revision:
			revision = p.Revision
		case *componentv1.SnapshotResponse_Sha256:
			want = p.Sha256
		case *componentv1.SnapshotResponse_Chunk:
			n, err := io.MultiWriter(w, sum).Write(p.Chunk)
			if err != nil {
				return 0, 0, err
			}
			written += int64(n)
		}
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return 0, 0, fmt.Errorf("the snapshot arrived damaged: its checksum is %x, the gateway's %x", sum.Sum(nil), want)
	}
	return written, revision, nil
}

func (c *cli) defragmentCommand() *cobra.Command {
	return &cobra.Command{
		Use: "defragment", Short: "Make room in etcd: forget history, give free space back, take back the alarm NOSPACE",
		Args: exactly(0, "no arguments"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			answer, err := componentv1.NewMaintenanceServiceClient(c.conn).Defragment(ctx, &componentv1.DefragmentRequest{})
			if err != nil {
				return apierr.FromStatus(err)
			}
			c.print("etcd's database was %s and is %s now", size(answer.GetBeforeBytes()), size(answer.GetAfterBytes()))
			return nil
		}),
	}
}
