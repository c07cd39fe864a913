package cli

import (
	"context"
	"fmt"
	"strings"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	"trireme.dev/cmd/trireme/internal/cli/table"
)

// target is what a command works on: one object, or all of a kind that a selector selects.
type target struct {
	kind      *kind.Kind
	namespace string
	// name of the object; empty for all.
	name string
}

func (t target) String() string { return table.ResourceName(t.kind) + "/" + t.name }

// resolve finds the kinds that a word stands for: a kind by any of its names, or a category.
func (c *cli) resolve(word string) ([]*kind.Kind, error) {
	if kinds := c.registry.ByCategory(word); len(kinds) > 0 {
		return kinds, nil
	}
	k, err := c.registry.Resolve(word)
	if err != nil {
		hint := "`trireme api-resources` lists what there is"
		if similar := c.similar(word); similar != "" {
			hint = fmt.Sprintf("did you mean %s?", similar)
		}
		return nil, fmt.Errorf("%w; %s", err, hint)
	}
	return []*kind.Kind{k}, nil
}

// one finds the single kind that a word stands for.
func (c *cli) one(word string) (*kind.Kind, error) {
	kinds, err := c.resolve(word)
	if err == nil && len(kinds) > 1 {
		err = fmt.Errorf("%s stands for several kinds; name one", word)
	}
	if err != nil {
		return nil, err
	}
	return kinds[0], nil
}

// similar finds a plural one edit away.
func (c *cli) similar(word string) string {
	word = strings.ToLower(word)
	for _, k := range c.registry.All() {
		for _, name := range append([]string{k.Plural, strings.ToLower(k.Name)}, k.ShortNames...) {
			if within(word, name) {
				return name
			}
		}
	}
	return ""
}

// within reports whether two words differ by one letter put in, left out or replaced, or by two swapped.
func within(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || len(a) < 3 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	return i == len(a) || a[i+1:] == b[i+1:] ||
		i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

// targets reads what follows a verb: TYPE[,TYPE] [NAME...] or TYPE/NAME...
func (c *cli) targets(args []string) ([]target, error) {
	var found []target
	add := func(k *kind.Kind, name string) {
		found = append(found, target{kind: k, namespace: c.nsFor(k), name: name})
	}
	slashes := 0
	for _, arg := range args {
		if strings.Contains(arg, "/") {
			slashes++
		}
	}
	switch {
	case len(args) == 0:
		return nil, usage("say which kind, such as pods; `trireme api-resources` lists what there is")
	case slashes == len(args):
		for _, arg := range args {
			word, name, _ := strings.Cut(arg, "/")
			if word == "" || name == "" || strings.Contains(name, "/") {
				return nil, usage("%q: want TYPE/NAME, such as pod/web", arg)
			}
			k, err := c.one(word)
			if err != nil {
				return nil, err
			}
			add(k, name)
		}
		return found, nil
	case slashes > 0:
		return nil, usage("write either TYPE NAME... or TYPE/NAME..., not both in one")
	}
	for _, word := range strings.Split(args[0], ",") {
		kinds, err := c.resolve(word)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			for _, name := range args[1:] {
				add(k, name)
			}
			if len(args) == 1 {
				add(k, "")
			}
		}
	}
	return found, nil
}

// documents reads manifests and gives each object the namespace that it is meant for. Everything that is wrong in any
// of them is reported, and then nothing is returned.
func (c *cli) documents(files []string, recursive bool) ([]manifest.Document, error) {
	names, err := manifest.Files(files, recursive)
	if err != nil {
		return nil, err
	}
	docs, err := manifest.Read(c.registry, names, c.In)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("no objects in %s", strings.Join(files, ", "))
	}
	var wrong []string
	for _, d := range docs {
		meta := d.Object.GetMetadata()
		switch {
		case !d.Kind.Namespaced:
			if meta.GetNamespace() != "" {
				wrong = append(wrong, fmt.Sprintf("%s: metadata.namespace: a %s has no namespace", d.Source, d.Kind.Name))
			}
		case meta.GetNamespace() == "":
			setNamespace(d.Object, c.ns())
		case c.namespace != "" && meta.GetNamespace() != c.namespace:
			wrong = append(wrong, fmt.Sprintf("%s: metadata.namespace: the manifest says %q and --namespace says %q; they must agree",
				d.Source, meta.GetNamespace(), c.namespace))
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return docs, nil
}

// targetsOf are the objects that documents name.
func targetsOf(docs []manifest.Document) ([]target, error) {
	var found []target
	for _, d := range docs {
		meta := d.Object.GetMetadata()
		if meta.GetName() == "" {
			return nil, fmt.Errorf("%s: metadata.name: missing; an object is found by its name", d.Source)
		}
		found = append(found, target{kind: d.Kind, namespace: meta.GetNamespace(), name: meta.GetName()})
	}
	return found, nil
}

// selection is the common way to choose objects: arguments, files, selectors.
type selection struct {
	files         []string
	recursive     bool
	labels        string
	fields        string
	all           bool // --all, where a command wants it said
	allNamespaces bool
}

// chosen resolves a selection to targets. all says whether TYPE alone stands for all objects without a flag.
func (c *cli) chosen(s *selection, args []string, all bool) ([]target, error) {
	if len(s.files) > 0 {
		if len(args) > 0 || s.labels != "" || s.fields != "" {
			return nil, usage("--filename goes with neither names nor selectors")
		}
		docs, err := c.documents(s.files, s.recursive)
		if err != nil {
			return nil, err
		}
		return targetsOf(docs)
	}
	targets, err := c.targets(args)
	if err != nil {
		return nil, err
	}
	for i, t := range targets {
		selecting := s.labels != "" || s.fields != ""
		switch {
		case t.name != "" && (selecting || s.all):
			return nil, usage("names go with neither selectors nor --all")
		case t.name != "" && s.allNamespaces:
			return nil, usage("an object cannot be found by name across all namespaces; give its --namespace")
		case t.name == "" && !selecting && !s.all && !all:
			return nil, usage("name the %s, select them with -l, or say --all", t.kind.Plural)
		}
		if s.allNamespaces {
			targets[i].namespace = ""
		}
	}
	return targets, nil
}

// fetch gets what targets stand for, in their order. Single objects that fail are reported beside the others.
func (c *cli) fetch(ctx context.Context, s *selection, targets []target) (found []located, errs []error) {
	for _, t := range targets {
		if t.name != "" {
			object, err := c.resource(t.kind).Get(ctx, t.namespace, t.name)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			found = append(found, located{t.kind, object})
			continue
		}
		list, err := c.resource(t.kind).List(ctx, client.ListOptions{
			Namespace: t.namespace, LabelSelector: s.labels, FieldSelector: s.fields,
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, object := range list.Items {
			found = append(found, located{t.kind, object})
		}
	}
	return found, errs
}

// located is an object with its kind.
type located struct {
	kind   *kind.Kind
	object client.Object
}

func (l located) String() string {
	return table.ResourceName(l.kind) + "/" + l.object.GetMetadata().GetName()
}
