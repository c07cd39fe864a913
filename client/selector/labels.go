// Package selector parses and matches label and field selectors in Kubernetes' syntax.
package selector

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Labels selects by labels. A nil one selects everything. It is immutable.
type Labels struct{ s labels.Selector }

// Nothing selects no object.
func Nothing() *Labels { return &Labels{labels.Nothing()} }

// ParseLabels reads the string form: app=web,tier in (a,b),!canary. An empty string selects everything.
func ParseLabels(s string) (*Labels, error) {
	parsed, err := labels.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %s", brief(s), brief(err.Error()))
	}
	return &Labels{parsed}, nil
}

// maxQuoted is how much of a selector an error repeats.
const maxQuoted = 1024

func brief(text string) string {
	if len(text) <= maxQuoted {
		return text
	}
	return strings.ToValidUTF8(text[:maxQuoted], "") + "..."
}

// FromMap selects objects that have all these labels; an empty map selects everything.
func FromMap(set map[string]string) *Labels {
	return &Labels{labels.SelectorFromSet(set)}
}

var operators = map[string]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
}

// FromLabelSelector reads the message form. As everywhere in Kubernetes an absent selector (nil) selects nothing and
// an empty one everything.
func FromLabelSelector(ls *metav1.LabelSelector) (*Labels, error) {
	if ls == nil {
		return Nothing(), nil
	}
	s := labels.NewSelector()
	for key, value := range ls.GetMatchLabels() {
		r, err := labels.NewRequirement(key, selection.Equals, []string{value})
		if err != nil {
			return nil, fmt.Errorf("matchLabels[%s]: %w", key, err)
		}
		s = s.Add(*r)
	}
	for i, e := range ls.GetMatchExpressions() {
		op, ok := operators[e.GetOperator()]
		if !ok {
			return nil, fmt.Errorf("matchExpressions[%d].operator: %q is not In, NotIn, Exists or DoesNotExist", i, e.GetOperator())
		}
		r, err := labels.NewRequirement(e.GetKey(), op, e.GetValues())
		if err != nil {
			return nil, fmt.Errorf("matchExpressions[%d]: %w", i, err)
		}
		s = s.Add(*r)
	}
	return &Labels{s}, nil
}

// Matches reports whether an object with these labels is selected.
func (l *Labels) Matches(set map[string]string) bool {
	return l == nil || l.s == nil || l.s.Matches(labels.Set(set))
}

// MatchesLookup is Matches over labels that are not in a map.
func (l *Labels) MatchesLookup(lookup func(key string) (value string, ok bool)) bool {
	return l == nil || l.s == nil || l.s.Matches(lookedUp(lookup))
}

// lookedUp makes a function what the parsed selector asks for.
type lookedUp func(key string) (string, bool)

func (l lookedUp) Has(key string) bool              { _, ok := l(key); return ok }
func (l lookedUp) Get(key string) string            { value, _ := l(key); return value }
func (l lookedUp) Lookup(key string) (string, bool) { return l(key) }

// Exact returns the only value that a label may have, where there is one.
func (l *Labels) Exact(key string) (value string, ok bool) {
	if l == nil || l.s == nil {
		return "", false
	}
	return l.s.RequiresExactMatch(key)
}

// IsEverything reports whether nothing is ruled out.
func (l *Labels) IsEverything() bool { return l == nil || l.s == nil || l.s.Empty() }

// String gives the form that ParseLabels reads.
func (l *Labels) String() string {
	if l == nil || l.s == nil {
		return ""
	}
	return l.s.String()
}
