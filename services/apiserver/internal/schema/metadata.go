package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const maxAnnotations = 256 << 10

// metadata checks what options cannot say of an object's own metadata.
func (s *Schema) metadata(p *path, meta *metav1.ObjectMeta, out *violations) {
	name := meta.GetName()
	switch {
	case name == "":
		if meta.GetGenerateName() == "" {
			out.required(p.field("name"), "name or generateName is required")
		}
	default:
		for _, message := range s.nameRule()(name) {
			out.invalid(p.field("name"), strconv.Quote(name), message)
		}
	}
	if prefix := meta.GetGenerateName(); prefix != "" {
		// The prefix may end in a dash: that is what the suffix is for.
		for _, message := range s.nameRule()(strings.TrimSuffix(prefix, "-") + "x") {
			out.invalid(p.field("generateName"), strconv.Quote(prefix), message)
		}
	}
	annotations(p.field("annotations"), meta.GetAnnotations(), out)
	finalizers(p.field("finalizers"), meta.GetFinalizers(), out)
	controllers := 0
	for _, ref := range meta.GetOwnerReferences() {
		if ref.GetController() {
			controllers++
		}
	}
	if controllers > 1 {
		out.invalid(p.field("ownerReferences"), "(ownerReferences)", "Only one reference can have Controller set to true")
	}
}

// Finalizers that need no domain.
var standardFinalizers = []string{"foregroundDeletion", "kubernetes", "orphan"}

func finalizers(p *path, names []string, out *violations) {
	orphan, foreground := false, false
	for i, f := range names {
		words(validation.IsQualifiedName)(p.item(i), f, out)
		if !strings.Contains(f, "/") && !slices.Contains(standardFinalizers, f) {
			out.invalid(p.item(i), strconv.Quote(f), "name is neither a standard finalizer name nor is it fully qualified")
		}
		orphan, foreground = orphan || f == "orphan", foreground || f == "foregroundDeletion"
	}
	if orphan && foreground {
		out.invalid(p, "(finalizers)", "finalizer orphan and foregroundDeletion cannot be both set")
	}
}

// annotations checks the keys of annotations, and how long they are all together.
func annotations(p *path, annotations map[string]string, out *violations) {
	size := 0
	for k, v := range annotations {
		size += len(k) + len(v)
	}
	if size > maxAnnotations {
		// Whatever else is wrong with so many is not worth finding.
		out.add(p, fmt.Sprintf("Too long: may not be more than %d bytes", maxAnnotations))
		return
	}
	var bad []string
	for k := range annotations {
		// Annotations may be written in capitals, as old tools did.
		if lower := strings.ToLower(k); !plainQualified(lower) && len(validation.IsQualifiedName(lower)) > 0 {
			bad = append(bad, k)
		}
	}
	slices.Sort(bad)
	for _, k := range bad {
		if out.full() {
			return
		}
		for _, message := range validation.IsQualifiedName(strings.ToLower(k)) {
			out.invalid(p, strconv.Quote(k), message)
		}
	}
}

func (s *Schema) nameRule() func(string) []string {
	switch s.kind.Options.GetNameFormat() {
	case metav1.NameFormat_NAME_FORMAT_DNS_LABEL:
		return unless(plainLabel, validation.IsDNS1123Label)
	case metav1.NameFormat_NAME_FORMAT_DNS_LABEL_1035:
		return validation.IsDNS1035Label
	}
	return unless(plainSubdomain, validation.IsDNS1123Subdomain)
}
