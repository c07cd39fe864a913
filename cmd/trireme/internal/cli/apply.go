package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func (c *cli) applyCommand() *cobra.Command {
	var (
		s      selection
		f      applyFlags
		dryRun string
		output string
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE...",
		Short: "Bring objects to what manifests say: create them, or change what differs",
		Long: `Bring objects to what manifests say: create them, or change what differs. The gateway keeps who set which field: what an
earlier apply set and the manifest no longer says is taken away, what others set stays, and a field that another owner
has set to something else is a conflict.

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
			if err := f.check(); err != nil {
				return err
			}
			return c.apply(ctx, &s, &f, dry, out)
		}),
	}
	cmd.Flags().StringArrayVarP(&s.files, "filename", "f", nil, "`FILE`, folder or - to apply (repeatable)")
	cmd.Flags().BoolVarP(&s.recursive, "recursive", "R", false, "read the folders inside folders too")
	f.add(cmd)
	addDryRun(cmd, &dryRun)
	cmd.Flags().StringVarP(&output, "output", "o", "", "`format` to print the objects in, instead of one line each: "+formats)
	return cmd
}

func (c *cli) apply(ctx context.Context, s *selection, f *applyFlags, dry dryRun, out *format) error {
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
		if errs := c.checkAll(ctx, docs, f); len(errs) > 0 {
			return c.failures(append(errs, errors.New("nothing was applied")))
		}
	}
	var applied []located
	var errs []error
	for _, d := range docs {
		object, did, err := d.Object, "created", error(nil)
		if dry != dryRunClient {
			object, _, did, err = c.applyOne(ctx, d, f, dry == dryRunServer)
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
func (c *cli) checkAll(ctx context.Context, docs []manifest.Document, f *applyFlags) []error {
	var errs []error
	for _, d := range docs {
		_, _, _, err := c.applyOne(ctx, d, f, true)
		switch {
		case apierr.IsUnavailable(err):
			return []error{err}
		case apierr.IsConflict(err), isRefused(err) && !awaitsPriorityClass(err, d, docs), lacksNamespace(err, docs):
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

// applyFlags are those of server-side apply.
type applyFlags struct {
	manager    string
	force      bool
	serverSide bool
}

func (f *applyFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.manager, "field-manager", fieldManager, "`name` under which the fields in the manifests are owned")
	flags.BoolVar(&f.force, "force-conflicts", false, "take over the fields that others own, instead of failing")
	flags.BoolVar(&f.serverSide, "server-side", true, "merge in the gateway, as this command always does")
}

func (f *applyFlags) check() error {
	if !f.serverSide {
		return usage("--server-side=false: apply merges in the gateway only")
	}
	return nil
}

// applyOne creates or changes one object and says which. It returns what there was too; nil where there was nothing.
func (c *cli) applyOne(ctx context.Context, d manifest.Document, f *applyFlags, dryRun bool) (object, before client.Object, did string, err error) {
	resource := c.resource(d.Kind).OnWarning(func(w string) { c.warn(d.Source, w) }).
		With(&metav1.WriteOptions{DryRun: dryRun, FieldManager: f.manager, Force: f.force})
	meta := d.Object.GetMetadata()
	if meta.GetName() == "" && meta.GetGenerateName() != "" {
		return nil, nil, "", apierr.BadRequest("an object with generateName has no name to apply it under: create it")
	}
	text, err := applied(d)
	if err != nil {
		return nil, nil, "", err
	}
	before, err = resource.Get(ctx, meta.GetNamespace(), meta.GetName())
	switch {
	case apierr.IsNotFound(err):
		before, did = nil, "created"
	case err != nil:
		return nil, nil, "", err
	default:
		did = "configured"
	}
	object, err = resource.Patch(ctx, meta.GetNamespace(), meta.GetName(), metav1.PatchType_PATCH_TYPE_APPLY, text, "")
	if err != nil {
		return nil, nil, "", explainConflict(err)
	}
	if before != nil && sameObject(before, object, dryRun) {
		did = "unchanged"
	}
	return object, before, did, nil
}

// applied is the manifest as JSON, in the apiVersion that it was written in.
func applied(d manifest.Document) ([]byte, error) {
	fields, err := manifest.Fields(d.Object)
	if err != nil {
		return nil, err
	}
	fields["apiVersion"] = d.APIVersion
	return json.Marshal(fields)
}

// explainConflict adds the way out to a conflict with other owners of fields.
func explainConflict(err error) error {
	var api *apierr.Error
	if errors.As(err, &api) && api.Reason == apierr.ReasonConflict && len(api.Violations) > 0 {
		return &advised{err, "; leave these fields out of the manifest, give them the values that they have, " +
			"or take them over with --force-conflicts"}
	}
	return err
}

// sameObject reports whether an apply changed nothing. A dry run has no version to tell by.
func sameObject(before, after client.Object, dryRun bool) bool {
	if !dryRun {
		return before.GetMetadata().GetResourceVersion() == after.GetMetadata().GetResourceVersion()
	}
	return proto.Equal(withoutTimes(before), withoutTimes(after))
}

func withoutTimes(o client.Object) client.Object {
	clone, _ := proto.Clone(o).(client.Object)
	for _, e := range clone.GetMetadata().GetManagedFields() {
		e.Time = nil
	}
	return clone
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
