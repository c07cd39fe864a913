package ownership

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"trireme.dev/client/manifest"
)

const (
	// lastApplied is where apply kept its manifest when it merged on the client's side.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// clientSideApply is the manager under which Kubernetes' client wrote such objects.
	clientSideApply = "kubectl-client-side-apply"
)

// appliers may take over what was applied on the client's side. Any other manager meets conflicts.
var appliers = []string{"trireme", "kubectl"}

// takeLastApplied makes the applier the owner of what the last client-side apply set and nobody has changed since, so
// that the first server-side apply meets no conflict with its own past and takes away what its manifest no longer says.
// An annotation that cannot be read is no reason to refuse an apply: it then is a field like any other.
func (t *Type) takeLastApplied(live Object, before *typed.TypedValue, managed *owners, w Writer, id string) {
	text := live.GetMetadata().GetAnnotations()[lastApplied]
	if text == "" || w.Subresource != "" || !slices.Contains(appliers, w.Manager) {
		return
	}
	in := t.shape(t.version(w))
	last := in.new()
	if err := manifest.FromJSON([]byte(text), last); err != nil {
		return
	}
	fields, err := manifest.Fields(last)
	if err != nil {
		return
	}
	value, err := in.parse.FromUnstructured(fields, typed.AllowDuplicates)
	if err != nil {
		return
	}
	said, err := value.ToFieldSet()
	if err != nil {
		return
	}
	differs, err := value.Compare(before)
	if err != nil {
		return
	}
	mine := said.Difference(differs.Modified).Difference(differs.Added).Difference(differs.Removed)
	mine.Insert(fieldpath.MakePathOrDie("metadata", "annotations", lastApplied))
	mine = mine.Difference(serverOwned)
	version := t.version(w)
	for owner, set := range managed.sets {
		if set.Applied() {
			continue
		}
		if i := managed.identity(owner); i.Manager != BeforeFirstApply && i.Manager != clientSideApply {
			continue
		}
		managed.put(owner, set.Set().Difference(mine), set.APIVersion(), false)
	}
	if had, ok := managed.sets[id]; ok {
		mine = mine.Union(had.Set())
	}
	managed.put(id, mine, version, true)
}
