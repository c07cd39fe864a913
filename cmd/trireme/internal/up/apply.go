package up

import (
	"context"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const defaultNamespace = "default"

// readManifests reads the files of --apply whole, before anything is started: what is wrong in them should not
// wait for a cluster.
func readManifests(files []string) ([]manifest.Document, error) {
	var (
		docs []manifest.Document
		errs []error
	)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found, err := manifest.Decode(kind.Builtin(), name, f)
		errs = append(errs, err, f.Close())
		docs = append(docs, found...)
	}
	for _, d := range docs {
		if meta := d.Object.GetMetadata(); d.Kind.Namespaced && meta.GetNamespace() == "" {
			meta.Namespace = defaultNamespace
		}
	}
	manifest.NeededFirst(docs)
	return docs, errors.Join(errs...)
}

// createAll creates what is not there yet. An object that exists stays as it is: a second up finds the cluster as
// it was left.
func createAll(ctx context.Context, conn grpc.ClientConnInterface, docs []manifest.Document, say func(format string, args ...any)) error {
	created := 0
	var errs []error
	for _, d := range docs {
		for _, w := range d.Warnings {
			say("warning: %s: %s", d.Source, w)
		}
		err := create(ctx, conn, d, func(w string) { say("warning: %s: %s", d.Source, w) })
		switch {
		case err == nil:
			created++
		case apierr.IsAlreadyExists(err):
		default:
			errs = append(errs, fmt.Errorf("%s: %w", d.Source, err))
		}
	}
	if len(docs) > 0 && len(errs) == 0 {
		say("%d of %d objects created%s", created, len(docs), map[bool]string{true: ", the others are there already"}[created < len(docs)])
	}
	return errors.Join(errs...)
}

// create applies one manifest where there is no such object, so that a later `trireme apply` owns what this one set.
func create(ctx context.Context, conn grpc.ClientConnInterface, d manifest.Document, warn func(string)) error {
	resource := client.Dynamic(conn, d.Kind).OnWarning(warn).With(&metav1.WriteOptions{FieldManager: "trireme"})
	meta := d.Object.GetMetadata()
	if meta.GetName() == "" {
		_, err := resource.Create(ctx, d.Object)
		return err
	}
	switch _, err := resource.Get(ctx, meta.GetNamespace(), meta.GetName()); {
	case err == nil:
		return apierr.AlreadyExists(d.Kind.Name, d.Kind.Key(meta.GetNamespace(), meta.GetName()))
	case !apierr.IsNotFound(err):
		return err
	}
	text, err := manifest.ToJSON(d.Object)
	if err != nil {
		return err
	}
	_, err = resource.Patch(ctx, meta.GetNamespace(), meta.GetName(), metav1.PatchType_PATCH_TYPE_APPLY, text, "")
	return err
}
