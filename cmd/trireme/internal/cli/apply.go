package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	"trireme.dev/client/merge"
	"trireme.dev/cmd/trireme/internal/lastapplied"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// conflictRetries bounds how often a write is repeated on what others wrote meanwhile.
const conflictRetries = 5

func (c *cli) applyCommand() *cobra.Command {
	var (
		s      selection
		dryRun string
		output string
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE...",
		Short: "Bring objects to what manifests say: create them, or change what differs",
		Long: `Bring objects to what manifests say: create them, or change what differs. What an earlier apply set and the
manifest no longer says is taken away; what others set stays.

All manifests are read and put to the gateway for checking before the first is written: a mistake in one of them leaves
the cluster as it is.`,
		Example: `  trireme apply -f web.yaml
  trireme apply -R -f manifests/
  curl -sSf https://example.com/web.yaml | trireme apply -f -`,
		Args: exactly(0, "manifests with -f"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			if len(s.files) == 0 {
				return usage("name the manifests with -f")
			}
			dry, err := parseDryRun(dryRun)
			if err != nil {
				return err
			}
			out, err := parseFormat(output)
			if err != nil {
				return err
			}
			return c.apply(ctx, &s, dry, out)
		}),
	}
	cmd.Flags().StringArrayVarP(&s.files, "filename", "f", nil, "`FILE`, folder or - to apply (repeatable)")
	cmd.Flags().BoolVarP(&s.recursive, "recursive", "R", false, "read the folders inside folders too")
	addDryRun(cmd, &dryRun)
	cmd.Flags().StringVarP(&output, "output", "o", "", "`format` to print the objects in, instead of one line each: "+formats)
	return cmd
}

func (c *cli) apply(ctx context.Context, s *selection, dry dryRun, out *format) error {
	docs, err := c.documents(s.files, s.recursive)
	if err != nil {
		return err
	}
	if _, err := targetsOf(docs); err != nil {
		return err
	}
	manifest.NeededFirst(docs)
	for _, d := range docs {
		for _, w := range d.Warnings {
			c.warn(d.Source, w)
		}
	}
	if dry == dryRunNone && len(docs) > 1 {
		if errs := c.checkAll(ctx, docs); len(errs) > 0 {
			return c.failures(append(errs, errors.New("nothing was applied")))
		}
	}
	var applied []located
	var errs []error
	for _, d := range docs {
		object, did, err := d.Object, "created", error(nil)
		if dry != dryRunClient {
			object, did, err = c.applyOne(ctx, d, dry == dryRunServer)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.Source, c.readable(err)))
			if apierr.IsUnavailable(err) {
				break // the others would fail alike
			}
			continue
		}
		applied = append(applied, located{d.Kind, object})
		if out.name == "" || out.name == "wide" {
			c.print("%s %s%s", located{d.Kind, object}, did, dry)
		}
	}
	if out.name != "" && out.name != "wide" && len(applied) > 0 {
		errs = append(errs, c.printObjects(out, applied, len(docs) == 1))
	}
	return c.failures(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
}

// checkAll puts every write to the gateway without storing it. What another document brings, a namespace or a priority
// class, may be missing as yet: that is left to the write itself.
func (c *cli) checkAll(ctx context.Context, docs []manifest.Document) []error {
	var errs []error
	for _, d := range docs {
		_, _, err := c.applyOne(ctx, d, true)
		switch {
		case apierr.IsUnavailable(err):
			return []error{err}
		case isRefused(err) && !awaitsPriorityClass(err, d, docs), lacksNamespace(err, docs):
			errs = append(errs, fmt.Errorf("%s: %w", d.Source, c.readable(err)))
		}
	}
	return errs
}

// isRefused reports whether a write will fail however often it is tried and whatever is written before it.
func isRefused(err error) bool {
	switch apierr.ReasonOf(err) {
	case apierr.ReasonInvalid, apierr.ReasonForbidden, apierr.ReasonUnauthenticated, apierr.ReasonFailedPrecondition, apierr.ReasonUnimplemented:
		return true
	}
	return false
}

// lacksNamespace reports whether a write failed for want of a namespace that none of the documents brings.
func lacksNamespace(err error, docs []manifest.Document) bool {
	var api *apierr.Error
	return errors.As(err, &api) && api.Reason == apierr.ReasonNotFound && api.Kind == "Namespace" &&
		!slices.ContainsFunc(docs, func(d manifest.Document) bool {
			return d.Kind.Name == "Namespace" && d.Object.GetMetadata().GetName() == api.Key
		})
}

// awaitsPriorityClass reports whether a pod was forbidden while a priority class that another document brings may be
// what it lacks.
func awaitsPriorityClass(err error, d manifest.Document, docs []manifest.Document) bool {
	pod, ok := d.Object.(*corev1.Pod)
	return ok && apierr.ReasonOf(err) == apierr.ReasonForbidden && slices.ContainsFunc(docs, func(d manifest.Document) bool {
		return d.Kind.Name == "PriorityClass" && d.Object.GetMetadata().GetName() == pod.GetSpec().GetPriorityClassName()
	})
}

// applyOne creates or changes one object and says which.
func (c *cli) applyOne(ctx context.Context, d manifest.Document, dryRun bool) (client.Object, string, error) {
	desired, err := lastapplied.With(d.Object)
	if err != nil {
		return nil, "", err
	}
	resource := c.writer(d.Kind, dryRun).OnWarning(func(w string) { c.warn(d.Source, w) })
	meta := d.Object.GetMetadata()
	for try := 0; ; try++ {
		live, err := resource.Get(ctx, meta.GetNamespace(), meta.GetName())
		switch {
		case apierr.IsNotFound(err):
			created, err := resource.Create(ctx, desired)
			if apierr.IsAlreadyExists(err) && try < conflictRetries {
				continue
			}
			return created, "created", err
		case err != nil:
			return nil, "", err
		}
		merged, ok := merge.ThreeWay(lastapplied.Of(live), live, desired).(client.Object)
		if !ok || proto.Equal(merged, live) {
			return live, "unchanged", nil
		}
		updated, err := resource.Update(ctx, merged)
		switch {
		case (apierr.IsConflict(err) || apierr.IsNotFound(err)) && try < conflictRetries:
			continue
		case err != nil:
			return nil, "", err
		case !dryRun && updated.GetMetadata().GetResourceVersion() == live.GetMetadata().GetResourceVersion():
			return updated, "unchanged", nil
		}
		return updated, "configured", nil
	}
}

// metadataOf returns an object's metadata for changing.
func metadataOf(object client.Object) *metav1.ObjectMeta {
	if object.GetMetadata() == nil {
		m := object.ProtoReflect()
		m.Set(m.Descriptor().Fields().ByNumber(1), protoreflect.ValueOfMessage((&metav1.ObjectMeta{}).ProtoReflect()))
	}
	return object.GetMetadata()
}

func setNamespace(object client.Object, namespace string) { metadataOf(object).Namespace = namespace }

// dryRun says how far a write goes.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunClient dryRun = "client"
	dryRunServer dryRun = "server"
)

// String is what stands behind a result.
func (d dryRun) String() string {
	switch d {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	}
	return ""
}

func addDryRun(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "dry-run", string(dryRunNone), "none; client: write nothing; server: let the gateway check it and store nothing")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(dryRunClient)
}

func parseDryRun(value string) (dryRun, error) {
	switch d := dryRun(value); d {
	case dryRunNone, dryRunClient, dryRunServer:
		return d, nil
	}
	return "", usage("--dry-run=%s: want none, client or server", value)
}
