package selector_test

import (
	"testing"

	"trireme.dev/client/selector"
)

// FuzzLabels reads any label selector: refused with a short error, or one that reads back and matches the same.
func FuzzLabels(f *testing.F) {
	for _, seed := range []string{"app=web,tier in (a,b),!canary", "a notin ()", "a,b!=c", "x in (", "a==b", "a>1,b<2", ""} {
		f.Add(seed)
	}
	sets := []map[string]string{nil, {"app": "web", "tier": "a"}, {"a": "2", "b": "1"}, {"canary": ""}}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := selector.ParseLabels(text)
		if err != nil {
			if len(err.Error()) > 16<<10 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := selector.ParseLabels(s.String())
		if err != nil {
			t.Fatalf("%q prints as %q: %v", text, s, err)
		}
		for _, set := range sets {
			if s.Matches(set) != again.Matches(set) {
				t.Fatalf("%q and %q differ on %v", text, s, set)
			}
		}
	})
}

// FuzzFields does the same with field selectors.
func FuzzFields(f *testing.F) {
	for _, seed := range []string{"spec.nodeName=n", "a!=b,c==d", "a=b=c", `a=\,b`, "=x", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := selector.ParseFields(text)
		if err != nil {
			return
		}
		again, err := selector.ParseFields(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q prints as %q and then as %v, %v", text, s, again, err)
		}
	})
}
