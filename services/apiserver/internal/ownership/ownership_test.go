package ownership_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/ownership"
)

var start = time.Unix(1_700_000_000, 0)

func configMaps(t *testing.T) *ownership.Type {
	t.Helper()
	o, err := ownership.Compile(kind.Of((&corev1.ConfigMap{}).ProtoReflect().Type()))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func config(t *testing.T, text string) *corev1.ConfigMap {
	t.Helper()
	m := &corev1.ConfigMap{}
	if err := manifest.FromJSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},`+text+`}`), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// story plays writes on one object and tells who owns what.
type story struct {
	t    *testing.T
	kind *ownership.Type
	live ownership.Object
	now  time.Time
}

func (s *story) apply(manager, text string, force bool) error {
	s.now = s.now.Add(time.Minute)
	next, err := s.kind.Apply(s.live, config(s.t, text), ownership.Writer{Manager: manager}, force, s.now)
	if err == nil {
		s.live = next
	}
	return err
}

func (s *story) update(manager string, edit func(*corev1.ConfigMap)) {
	s.t.Helper()
	s.now = s.now.Add(time.Minute)
	next, _ := proto.Clone(s.live).(*corev1.ConfigMap)
	edit(next)
	if err := s.kind.Update(s.live, next, ownership.Writer{Manager: manager}, s.now); err != nil {
		s.t.Fatal(err)
	}
	s.live = next
}

func (s *story) owners() map[string]string {
	out := map[string]string{}
	for _, e := range s.live.GetMetadata().GetManagedFields() {
		text, err := protojson.Marshal(e.GetFieldsV1())
		if err != nil {
			s.t.Fatal(err)
		}
		out[e.GetManager()+" "+e.GetOperation()] = strings.ReplaceAll(string(text), " ", "")
	}
	return out
}

func (s *story) want(want map[string]string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.owners()); diff != "" {
		s.t.Fatal(diff)
	}
}

func TestOwnersOfOneObject(t *testing.T) {
	s := &story{t: t, kind: configMaps(t), now: start}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.apply("one", `"data":{"a.b":"1","a":"1","zero":""}`, false))
	s.want(map[string]string{"one Apply": `{"f:data":{"f:a":{},"f:a.b":{},"f:zero":{}}}`})

	// Another's value of a key with a dot is a conflict of that key alone; an empty value is a value.
	err := s.apply("two", `"data":{"a.b":"2","zero":"x"}`, false)
	var e *apierr.Error
	if apierr.ReasonOf(err) != apierr.ReasonConflict || !strings.Contains(err.Error(), `conflict with "one"`) {
		t.Fatal(err)
	}
	if e, _ = err.(*apierr.Error); len(e.Violations) != 2 || e.Violations[0].Field != "data.a.b" || e.Violations[1].Field != "data.zero" { //nolint:errorlint // it comes bare
		t.Fatalf("violations %v", e.Violations)
	}
	// What was refused changed nothing.
	s.want(map[string]string{"one Apply": `{"f:data":{"f:a":{},"f:a.b":{},"f:zero":{}}}`})

	// The same value is shared; who gives it up leaves it to the other, the last takes it along.
	must(s.apply("two", `"data":{"a.b":"1"}`, false))
	must(s.apply("one", `"data":{"a":"1"}`, false))
	if got := s.live.(*corev1.ConfigMap).GetData(); !maps.Equal(got, map[string]string{"a": "1", "a.b": "1"}) {
		t.Fatalf("data %v", got)
	}
	must(s.apply("two", `"data":{"c":"1"}`, false))
	if got := s.live.(*corev1.ConfigMap).GetData(); !maps.Equal(got, map[string]string{"a": "1", "c": "1"}) {
		t.Fatalf("data %v", got)
	}

	// An update takes what it changes from whoever applied it, and a later apply meets the updater's name.
	s.update("editor", func(m *corev1.ConfigMap) { m.Data["a"] = "9"; m.Data["new"] = "1" })
	s.want(map[string]string{"two Apply": `{"f:data":{"f:c":{}}}`, "editor Update": `{"f:data":{"f:a":{},"f:new":{}}}`})
	err = s.apply("one", `"data":{"a":"1"}`, false)
	if err == nil || !strings.Contains(err.Error(), `conflict with "editor" using v1 at `) {
		t.Fatal(err)
	}
	must(s.apply("one", `"data":{"a":"1"}`, true))
	s.want(map[string]string{"one Apply": `{"f:data":{"f:a":{}}}`, "two Apply": `{"f:data":{"f:c":{}}}`, "editor Update": `{"f:data":{"f:new":{}}}`})

	// A field that is removed has no owner any more.
	s.update("editor", func(m *corev1.ConfigMap) { delete(m.Data, "c") })
	s.want(map[string]string{"one Apply": `{"f:data":{"f:a":{}}}`, "editor Update": `{"f:data":{"f:new":{}}}`})

	// An apply that says the same changes nothing, the time included.
	before := proto.Clone(s.live)
	must(s.apply("one", `"data":{"a":"1"}`, false))
	if diff := cmp.Diff(before, s.live, protocmp.Transform()); diff != "" {
		t.Fatal(diff)
	}

	// One empty entry, alone, forgets all.
	s.update("editor", func(m *corev1.ConfigMap) { m.Metadata.ManagedFields = []*metav1.ManagedFieldsEntry{{}} })
	s.want(map[string]string{})
}

// Ten updaters are kept apart, the oldest beyond them become one; appliers are never merged.
func TestOldUpdatersAreMerged(t *testing.T) {
	s := &story{t: t, kind: configMaps(t), now: start}
	for i := range 3 {
		if err := s.apply(fmt.Sprint("applier", i), fmt.Sprintf(`"data":{"x%d":"1"}`, i), false); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		s.update(fmt.Sprintf("editor%02d", i), func(m *corev1.ConfigMap) { m.Data[fmt.Sprintf("k%02d", i)] = "1" })
	}
	owners := s.owners()
	if got := owners["ancient-changes Update"]; got != `{"f:data":{"f:k00":{},"f:k01":{},"f:k02":{}}}` {
		t.Errorf("ancient changes are %s", got)
	}
	if names := slices.Sorted(maps.Keys(owners)); len(names) != 3+10 || names[1] != "applier0 Apply" || names[4] != "editor03 Update" {
		t.Errorf("owners %q", names)
	}
}

// Of an object that nobody keeps owners of nothing is kept, and one with more entries than that is worth is refused.
func TestWhatIsNotKept(t *testing.T) {
	s := &story{t: t, kind: configMaps(t), now: start, live: config(t, `"data":{"a":"1"}`)}
	s.update("editor", func(m *corev1.ConfigMap) { m.Data["a"] = "2" })
	if ownership.Tracked(s.live) {
		t.Fatalf("owners %v", s.owners())
	}
	if err := s.apply("one", `"data":{"b":"1"}`, false); err != nil {
		t.Fatal(err)
	}
	s.want(map[string]string{"before-first-apply Update": `{"f:data":{".":{},"f:a":{}}}`, "one Apply": `{"f:data":{"f:b":{}}}`})

	crowd := config(t, `"data":{}`)
	crowd.Data = map[string]string{}
	for i := range 10_001 {
		crowd.Data[fmt.Sprint(i)] = ""
	}
	begun := time.Now()
	err := s.kind.Start(crowd, ownership.Writer{Manager: "one"}, start)
	if apierr.ReasonOf(err) != apierr.ReasonInvalid || !strings.Contains(err.Error(), "data: Too many: 10001") {
		t.Fatalf("%v after %s", err, time.Since(begun))
	}
}
