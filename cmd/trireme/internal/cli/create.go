package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/manifest"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// creation is how the commands that make objects write and print them.
type creation struct {
	dryRun string
	output string
}

func (f *creation) addFlags(c *cli, cmd *cobra.Command) {
	addDryRun(cmd, &f.dryRun)
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "`format` to print the object in, instead of one line: "+formats)
	c.completeWords(cmd, "output", "yaml", "json", "name", "jsonpath=")
}

func (c *cli) createCommand() *cobra.Command {
	var s selection
	f := &creation{}
	cmd := &cobra.Command{
		Use:   "create -f FILE...",
		Short: "Create objects from manifests, or a simple one from flags",
		Args:  exactly(0, "manifests with -f, or the name of a kind that it can make"),
		RunE: c.online(func(ctx context.Context, _ []string) error {
			if len(s.files) == 0 {
				return usage("name the manifests with -f, or say what to create, as in `trireme create namespace team-a`")
			}
			docs, err := c.documents(s.files, s.recursive)
			if err != nil {
				return err
			}
			return c.create(ctx, f, docs...)
		}),
	}
	cmd.Flags().StringArrayVarP(&s.files, "filename", "f", nil, "`FILE`, folder or - to create from (repeatable)")
	cmd.Flags().BoolVarP(&s.recursive, "recursive", "R", false, "read the folders inside folders too")
	f.addFlags(c, cmd)
	cmd.AddCommand(c.createDeploymentCommand(), c.createNamespaceCommand(), c.createConfigMapCommand(), c.createSecretCommand())
	return cmd
}

// create stores objects one after the other and reports all that could not be.
func (c *cli) create(ctx context.Context, f *creation, docs ...manifest.Document) error {
	dry, err := parseDryRun(f.dryRun)
	if err != nil {
		return err
	}
	out, err := parseFormat(f.output)
	if err != nil {
		return err
	}
	manifest.NeededFirst(docs)
	if dry == dryRunNone && len(docs) > 1 {
		var errs []error
		for _, d := range docs {
			_, err := c.writer(d.Kind, true).Create(ctx, d.Object)
			if isRefused(err) && !awaitsPriorityClass(err, d, docs) || lacksNamespace(err, docs) {
				errs = append(errs, at(d.Source, c.readable(err)))
			}
		}
		if len(errs) > 0 {
			return c.failures(append(errs, errors.New("nothing was created")))
		}
	}
	var created []located
	var errs []error
	for _, d := range docs {
		for _, w := range d.Warnings {
			c.warn(d.Source, w)
		}
		object := d.Object
		if dry != dryRunClient {
			resource := c.writer(d.Kind, dry == dryRunServer).OnWarning(func(w string) { c.warn(d.Source, w) })
			if object, err = resource.Create(ctx, d.Object); err != nil {
				errs = append(errs, at(d.Source, c.readable(err)))
				continue
			}
		}
		created = append(created, located{d.Kind, object})
		if out.name == "" || out.name == "wide" {
			c.print("%s created%s", located{d.Kind, object}, dry)
		}
	}
	if out.name != "" && out.name != "wide" && len(created) > 0 {
		if err := c.printObjects(out, created, len(docs) == 1); err != nil {
			errs = append(errs, err)
		}
	}
	return c.failures(errs)
}

func at(source string, err error) error {
	if source == "" {
		return err
	}
	return fmt.Errorf("%s: %w", source, err)
}

// made is an object that flags describe.
func (c *cli) made(object client.Object) manifest.Document {
	k, _ := c.registry.ByMessage(object.ProtoReflect().Descriptor().FullName())
	return manifest.Document{Object: object, Kind: k, APIVersion: k.APIVersion()}
}

func (c *cli) createDeploymentCommand() *cobra.Command {
	f := &creation{}
	var (
		images   []string
		replicas int32
		port     int32
	)
	cmd := &cobra.Command{
		Use:     "deployment NAME --image IMAGE [-- COMMAND...]",
		Aliases: []string{"deploy"},
		Short:   "Create a Deployment",
		Args:    atLeast(1, "a name"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			if len(images) == 0 {
				return usage("--image is needed")
			}
			labels := map[string]string{"app": args[0]}
			spec := &corev1.PodSpec{}
			for _, image := range images {
				container := &corev1.Container{Name: containerName(image), Image: image}
				if len(images) == 1 {
					container.Command = args[1:]
				}
				if port > 0 {
					container.Ports = []*corev1.ContainerPort{{ContainerPort: port}}
				}
				spec.Containers = append(spec.Containers, container)
			}
			return c.create(ctx, f, c.made(&appsv1.Deployment{
				Metadata: &metav1.ObjectMeta{Name: args[0], Namespace: c.ns(), Labels: labels},
				Spec: &appsv1.DeploymentSpec{
					Replicas: proto.Int32(replicas),
					Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: &corev1.PodTemplateSpec{Metadata: &metav1.ObjectMeta{Labels: labels}, Spec: spec},
				},
			}))
		}),
	}
	cmd.Flags().StringArrayVar(&images, "image", nil, "`image` to run (repeatable: one container each)")
	cmd.Flags().Int32VarP(&replicas, "replicas", "r", 1, "`number` of pods")
	cmd.Flags().Int32Var(&port, "port", 0, "`port` that the container listens on")
	f.addFlags(c, cmd)
	return cmd
}

// containerName makes a name of an image's last part: example.com/team/web:1 is web.
func containerName(image string) string {
	name := image[strings.LastIndex(image, "/")+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	if name = strings.Trim(name, "-"); name == "" {
		return "main"
	}
	return name
}

func (c *cli) createNamespaceCommand() *cobra.Command {
	f := &creation{}
	cmd := &cobra.Command{
		Use: "namespace NAME", Aliases: []string{"ns"}, Short: "Create a namespace", Args: exactly(1, "a name"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			return c.create(ctx, f, c.made(&corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: args[0]}}))
		}),
	}
	f.addFlags(c, cmd)
	return cmd
}

func (c *cli) createConfigMapCommand() *cobra.Command {
	f, d := &creation{}, &dataFlags{}
	cmd := &cobra.Command{
		Use: "configmap NAME", Aliases: []string{"cm"}, Short: "Create a ConfigMap of values and files", Args: exactly(1, "a name"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			data, err := d.read()
			if err != nil {
				return err
			}
			m := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: args[0], Namespace: c.ns()}}
			for key, value := range data {
				if utf8.Valid(value) {
					if m.Data == nil {
						m.Data = map[string]string{}
					}
					m.Data[key] = string(value)
					continue
				}
				if m.BinaryData == nil {
					m.BinaryData = map[string][]byte{}
				}
				m.BinaryData[key] = value
			}
			return c.create(ctx, f, c.made(m))
		}),
	}
	d.addFlags(cmd)
	f.addFlags(c, cmd)
	return cmd
}

func (c *cli) createSecretCommand() *cobra.Command {
	parent := &cobra.Command{
		Use: "secret", Short: "Create a Secret", Args: exactly(0, "the kind of secret: generic"),
		RunE: func(*cobra.Command, []string) error {
			return usage("say which kind: `trireme create secret generic NAME`")
		},
	}
	f, d := &creation{}, &dataFlags{}
	var secretType string
	cmd := &cobra.Command{
		Use: "generic NAME", Short: "Create a Secret of values and files", Args: exactly(1, "a name"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			data, err := d.read()
			if err != nil {
				return err
			}
			s := &corev1.Secret{Metadata: &metav1.ObjectMeta{Name: args[0], Namespace: c.ns()}, Data: data}
			if secretType != "" {
				s.Type = proto.String(secretType)
			}
			return c.create(ctx, f, c.made(s))
		}),
	}
	cmd.Flags().StringVar(&secretType, "type", "", "`type` of the secret (default Opaque)")
	d.addFlags(cmd)
	f.addFlags(c, cmd)
	parent.AddCommand(cmd)
	return parent
}

// dataFlags fill ConfigMaps and Secrets.
type dataFlags struct{ literals, files []string }

func (d *dataFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&d.literals, "from-literal", nil, "`KEY=VALUE` (repeatable)")
	cmd.Flags().StringArrayVar(&d.files, "from-file", nil, "`[KEY=]FILE`, or a folder whose files are all taken (repeatable)")
}

func (d *dataFlags) read() (map[string][]byte, error) {
	data := map[string][]byte{}
	put := func(key string, value []byte) error {
		if _, twice := data[key]; twice {
			return usage("key %q is given twice", key)
		}
		data[key] = value
		return nil
	}
	for _, literal := range d.literals {
		key, value, ok := strings.Cut(literal, "=")
		if !ok || key == "" {
			return nil, usage("--from-literal %s: want KEY=VALUE", literal)
		}
		if err := put(key, []byte(value)); err != nil {
			return nil, err
		}
	}
	for _, arg := range d.files {
		key, path, named := strings.Cut(arg, "=")
		if !named {
			key, path = filepath.Base(arg), arg
		}
		if key == "" || path == "" {
			return nil, usage("--from-file %s: want [KEY=]FILE", arg)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		paths := map[string]string{key: path}
		if info.IsDir() {
			if named {
				return nil, usage("--from-file %s: a folder takes no key: its files are called as they are", arg)
			}
			if paths, err = filesIn(path); err != nil {
				return nil, err
			}
		}
		for key, path := range paths {
			value, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if err := put(key, value); err != nil {
				return nil, err
			}
		}
	}
	return data, nil
}

// filesIn are the regular files of a folder by name.
func filesIn(folder string) (map[string]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, e := range entries {
		if e.Type().IsRegular() {
			paths[e.Name()] = filepath.Join(folder, e.Name())
		}
	}
	return paths, nil
}
