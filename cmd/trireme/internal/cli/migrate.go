package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"trireme.dev/client/apierr"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
)

func (c *cli) migrateStorageCommand() *cobra.Command {
	var after string
	cmd := &cobra.Command{
		Use: "migrate-storage [KIND]", Short: "Rewrite what etcd holds in a form that is no longer written",
		Long: `Rewrite the objects of KIND, or of all kinds, that were stored by an older version of Trireme in another form. The
gateway reads them as they are; a migration is due only before a version that no longer does. It may run beside everything
else, and be repeated: what is in the present form is left alone.`,
		Example: "  trireme migrate-storage\n  trireme migrate-storage podgroups",
		Args:    cobra.MaximumNArgs(1),
		RunE: c.online(func(ctx context.Context, args []string) error {
			req := &componentv1.MigrateStorageRequest{ResumeAfter: after}
			if len(args) > 0 {
				req.Kind = args[0]
			}
			return c.migrateStorage(ctx, req)
		}),
	}
	cmd.Flags().StringVar(&after, "resume-after", "", "`key` up to which an earlier run came")
	return cmd
}

// migrateStorage follows a migration to its end.
func (c *cli) migrateStorage(ctx context.Context, req *componentv1.MigrateStorageRequest) error {
	stream, err := componentv1.NewMaintenanceServiceClient(c.conn).MigrateStorage(ctx, req)
	if err != nil {
		return apierr.FromStatus(err)
	}
	last := req.GetResumeAfter()
	migrated, unreadable := int64(0), 0
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			err = apierr.FromStatus(err)
			if last != "" {
				err = fmt.Errorf("%w; --resume-after %s goes on from here", err, last)
			}
			return err
		}
		last = r.GetLastKey()
		for _, u := range r.GetUnreadable() {
			unreadable++
			fmt.Fprintf(c.Err, "%s: %s\n", u.GetKey(), u.GetReason())
		}
		if r.GetDone() && r.GetSeen() > 0 {
			migrated += r.GetMigrated()
			c.print("%s: %d seen, %d rewritten in storage version %d", r.GetResource(), r.GetSeen(), r.GetMigrated(), r.GetStorageVersion())
		}
	}
	if unreadable > 0 {
		return fmt.Errorf("%d rewritten; %d values are no objects and were left as they are", migrated, unreadable)
	}
	c.print("%d rewritten", migrated)
	return nil
}
