package framework

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unique"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/selector"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// LabelClass stands for a pod's namespace and labels: pods that no selector can tell apart have equal classes.
type LabelClass struct{ handle unique.Handle[string] }

func classOf(pod *corev1.Pod) LabelClass {
	meta := pod.GetMetadata()
	var b strings.Builder
	b.WriteString(meta.GetNamespace())
	labels := meta.GetLabels()
	var room [16]string
	keys := room[:0]
	for k := range labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		// NUL is in no name and no label.
		b.WriteByte(0)
		b.WriteString(k)
		b.WriteByte(0)
		b.WriteString(labels[k])
	}
	return LabelClass{unique.Make(b.String())}
}

// PodSelector selects pods by namespace and labels. It is immutable. Make it with NewPodSelector.
type PodSelector struct {
	namespaces    []string // sorted
	everywhere    bool
	namespaceSet  *selector.Labels // nil for none
	labels        *selector.Labels
	noTerminating bool
	key           string
}

// PodSelectorConfig says what a PodSelector selects.
type PodSelectorConfig struct {
	// Namespaces, and those that NamespaceSelector selects by their labels (none where nil).
	Namespaces        []string
	NamespaceSelector *metav1.LabelSelector
	// Labels of the pods; nil selects nothing.
	Labels *metav1.LabelSelector
	// SkipTerminating leaves out pods that are being deleted.
	SkipTerminating bool
}

// NewPodSelector reads the selectors.
func NewPodSelector(c PodSelectorConfig) (*PodSelector, error) {
	s := &PodSelector{noTerminating: c.SkipTerminating}
	s.namespaces = slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))
	var err error
	if s.labels, err = selector.FromLabelSelector(c.Labels); err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	if c.NamespaceSelector != nil {
		if s.namespaceSet, err = selector.FromLabelSelector(c.NamespaceSelector); err != nil {
			return nil, fmt.Errorf("namespaceSelector: %w", err)
		}
		s.everywhere = s.namespaceSet.IsEverything()
	}
	labels := s.labels.String()
	if c.Labels == nil {
		labels = "\x00" // nothing, where the empty text is everything
	}
	s.key = strings.Join(s.namespaces, ",") + "|" + s.namespaceSet.String() + "|" + fmt.Sprint(c.NamespaceSelector != nil, c.SkipTerminating) + "|" + labels
	return s, nil
}

// Matches reports whether the pod is selected. namespaceLabels gives the labels of a namespace.
func (s *PodSelector) Matches(pod *PodInfo, namespaceLabels func(string) map[string]string) bool {
	if s.noTerminating && pod.Terminating() {
		return false
	}
	return s.matchesClass(pod, namespaceLabels)
}

// matchesClass is Matches of a pod that is not being deleted.
func (s *PodSelector) matchesClass(pod *PodInfo, namespaceLabels func(string) map[string]string) bool {
	return s.matchesNamespace(pod.Namespace(), namespaceLabels) && s.labels.Matches(pod.Labels())
}

func (s *PodSelector) matchesNamespace(namespace string, labels func(string) map[string]string) bool {
	if s.everywhere {
		return true
	}
	if _, ok := slices.BinarySearch(s.namespaces, namespace); ok {
		return true
	}
	return s.namespaceSet != nil && s.namespaceSet.Matches(labels(namespace))
}

// PodAffinity is what a pod wants of the pods near it, read once.
type PodAffinity struct {
	Required, AntiRequired   []*PodTerm
	Preferred, AntiPreferred []WeightedPodTerm
}

// PodTerm selects pods, and the topology within which they are near.
type PodTerm struct {
	*PodSelector
	TopologyKey string
	key         string
}

// WeightedPodTerm is a wish.
type WeightedPodTerm struct {
	*PodTerm
	Weight int32
}

func podAffinity(pod *corev1.Pod) (*PodAffinity, error) {
	with := pod.GetSpec().GetAffinity().GetPodAffinity()
	anti := pod.GetSpec().GetAffinity().GetPodAntiAffinity()
	if with == nil && anti == nil {
		return nil, nil
	}
	var (
		a    PodAffinity
		errs []error
	)
	terms := func(list []*corev1.PodAffinityTerm) (out []*PodTerm) {
		for _, t := range list {
			out = append(out, podTerm(pod, t, &errs))
		}
		return out
	}
	weighted := func(list []*corev1.WeightedPodAffinityTerm) (out []WeightedPodTerm) {
		for _, t := range list {
			out = append(out, WeightedPodTerm{podTerm(pod, t.GetPodAffinityTerm(), &errs), t.GetWeight()})
		}
		return out
	}
	a.Required = terms(with.GetRequiredDuringSchedulingIgnoredDuringExecution())
	a.Preferred = weighted(with.GetPreferredDuringSchedulingIgnoredDuringExecution())
	a.AntiRequired = terms(anti.GetRequiredDuringSchedulingIgnoredDuringExecution())
	a.AntiPreferred = weighted(anti.GetPreferredDuringSchedulingIgnoredDuringExecution())
	if len(a.Required)+len(a.Preferred)+len(a.AntiRequired)+len(a.AntiPreferred) == 0 {
		return nil, nil
	}
	return &a, errors.Join(errs...)
}

func podTerm(pod *corev1.Pod, t *corev1.PodAffinityTerm, errs *[]error) *PodTerm {
	c := PodSelectorConfig{Namespaces: t.GetNamespaces(), NamespaceSelector: t.GetNamespaceSelector(), Labels: t.GetLabelSelector()}
	if len(c.Namespaces) == 0 && c.NamespaceSelector == nil {
		c.Namespaces = []string{pod.GetMetadata().GetNamespace()}
	}
	c.Labels = withLabelKeys(c.Labels, pod.GetMetadata().GetLabels(), t.GetMatchLabelKeys(), "In")
	c.Labels = withLabelKeys(c.Labels, pod.GetMetadata().GetLabels(), t.GetMismatchLabelKeys(), "NotIn")
	s, err := NewPodSelector(c)
	if err != nil {
		*errs = append(*errs, err)
		s, _ = NewPodSelector(PodSelectorConfig{})
	}
	return &PodTerm{PodSelector: s, TopologyKey: t.GetTopologyKey(), key: t.GetTopologyKey() + "|" + s.key}
}

// withLabelKeys adds to a selector that pods have the same value of each key, or another, as labels have.
func withLabelKeys(s *metav1.LabelSelector, labels map[string]string, keys []string, operator string) *metav1.LabelSelector {
	if s == nil || len(keys) == 0 {
		return s
	}
	s = proto.CloneOf(s)
	for _, k := range keys {
		if v, ok := labels[k]; ok {
			s.MatchExpressions = append(s.MatchExpressions, &metav1.LabelSelectorRequirement{Key: k, Operator: operator, Values: []string{v}})
		}
	}
	return s
}

// WithLabelKeys is what matchLabelKeys of a spread constraint makes of its selector: pods must have the same values of
// these labels as the pod with labels has.
func WithLabelKeys(s *metav1.LabelSelector, labels map[string]string, keys []string) *metav1.LabelSelector {
	return withLabelKeys(s, labels, keys, "In")
}
