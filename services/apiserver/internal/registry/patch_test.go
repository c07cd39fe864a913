package registry_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	jsonPatch      = metav1.PatchType_PATCH_TYPE_JSON
	mergePatch     = metav1.PatchType_PATCH_TYPE_MERGE
	strategicPatch = metav1.PatchType_PATCH_TYPE_STRATEGIC_MERGE
	applyPatch     = metav1.PatchType_PATCH_TYPE_APPLY
)

func web(t *testing.T, e *env) *client.Resource[*appsv1.Deployment] {
	t.Helper()
	d := client.For[*appsv1.Deployment](e.Conn())
	must[*appsv1.Deployment](t)(applying(d, "one", false).Patch(t.Context(), "default", "web", applyPatch, []byte(webDeployment), ""))
	return d
}

// Strategic merge patches go by the keys of lists and obey directives; a change of spec moves the generation.
func TestStrategicMergePatch(t *testing.T) {
	e := newEnv(t)
	d := web(t, e)
	m := must[*appsv1.Deployment](t)
	got := m(d.Patch(t.Context(), "default", "web", strategicPatch,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"},{"name":"app","env":[{"name":"A","$patch":"delete"}]}]}}}}`), ""))
	containers := got.GetSpec().GetTemplate().GetSpec().GetContainers()
	if len(containers) != 2 || containers[1].GetImage() != "app:1" || len(containers[1].GetEnv()) != 0 || got.GetMetadata().GetGeneration() != 2 {
		t.Fatalf("generation %d, containers %v", got.GetMetadata().GetGeneration(), containers)
	}
	got = m(d.Patch(t.Context(), "default", "web", strategicPatch, []byte(`{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`), ""))
	if got.GetSpec().GetStrategy().GetRollingUpdate() != nil {
		t.Fatalf("strategy %v", got.GetSpec().GetStrategy())
	}
	_, err := d.Patch(t.Context(), "default", "web", strategicPatch, []byte(`{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}`), "")
	wantError(t, err, apierr.ReasonInvalid, "does not apply", "merge key name")
}

// A patch of the scale sees a Scale, changes replicas alone, and is refused what the object refuses.
func TestPatchScale(t *testing.T) {
	e := newEnv(t)
	d := web(t, e)
	got, err := d.With(&metav1.WriteOptions{FieldManager: "scaler"}).Patch(t.Context(), "default", "web", mergePatch, []byte(`{"spec":{"replicas":5}}`), "scale")
	if err != nil || got.GetSpec().GetReplicas() != 5 || ownersOf(t, got)["scaler Update scale"] != `{"f:spec":{"f:replicas":{}}}` {
		t.Fatalf("%v, %v", got, err)
	}
	for patch, want := range map[string]string{
		`{"spec":{"replicas":-1}}`: "spec.replicas", `{"spec":{"template":{}}}`: "unknown field",
	} {
		_, err = d.Patch(t.Context(), "default", "web", mergePatch, []byte(patch), "scale")
		wantError(t, err, apierr.ReasonInvalid, want)
	}
	_, err = d.Patch(t.Context(), "default", "web", mergePatch, []byte(`{"metadata":{"resourceVersion":"1"}}`), "scale")
	wantError(t, err, apierr.ReasonConflict, "has been changed")
	_, err = e.maps.Patch(t.Context(), "default", "m", mergePatch, []byte(`{}`), "scale")
	wantError(t, err, apierr.ReasonInvalid, `no subresource "scale"`)

	apps := appsv1.NewDeploymentServiceClient(e.Conn())
	before := e.Revision(t)
	scale, err := apps.UpdateScale(t.Context(), &metav1.UpdateScaleRequest{
		Scale:   &metav1.Scale{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: &metav1.ScaleSpec{Replicas: proto.Int32(9)}},
		Options: &metav1.WriteOptions{DryRun: true},
	})
	if err != nil || scale.GetSpec().GetReplicas() != 9 || e.Revision(t) != before {
		t.Fatalf("dry run: %v, %v", scale, err)
	}
	_, err = apps.UpdateScale(t.Context(), &metav1.UpdateScaleRequest{
		Scale: &metav1.Scale{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web", Uid: "other"}},
	})
	wantError(t, err, apierr.ReasonConflict, "UID in precondition")
}

// What an apply may not say, and where it may not go: one clear error each.
func TestApplyRefused(t *testing.T) {
	e := newEnv(t)
	m := must[*corev1.ConfigMap](t)
	live := m(applyMap(t, e, "one", `"data":{"a":"1"}`))
	apply := func(manager, text string) error {
		_, err := applying(e.maps, manager, false).Patch(t.Context(), "default", "m", applyPatch, []byte(text), "")
		return err
	}
	const head = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"`
	for _, c := range []struct {
		manager, text string
		reason        apierr.Reason
		want          string
	}{
		{"", head + `}}`, apierr.ReasonInvalid, "is required for apply patch"},
		{strings.Repeat("x", 129), head + `}}`, apierr.ReasonInvalid, "128 bytes"},
		{"a\nb", head + `}}`, apierr.ReasonInvalid, "printable"},
		{"one", `{"metadata":{"name":"m"}}`, apierr.ReasonInvalid, `apiVersion ""`},
		{"one", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"m"}}`, apierr.ReasonInvalid, `kind "Secret"`},
		{"one", `not JSON`, apierr.ReasonInvalid, "not a JSON object"},
		{"one", head + `},"dota":{}}`, apierr.ReasonInvalid, "dota: unknown field"},
		{"one", strings.Replace(head, `"m"`, `"n"`, 1) + `}}`, apierr.ReasonInvalid, "does not match"},
		{"one", head + `,"managedFields":[{"manager":"x"}]}}`, apierr.ReasonInvalid, "managedFields must be nil"},
		{"one", head + `,"resourceVersion":"1"},"data":{"a":"2"}}`, apierr.ReasonConflict, "has been changed"},
		{"one", head + `,"uid":"x"}}`, apierr.ReasonConflict, "UID in precondition"},
	} {
		wantError(t, apply(c.manager, c.text), c.reason, c.want)
	}
	if got := m(e.maps.Get(t.Context(), "default", "m")); got.GetMetadata().GetResourceVersion() != live.GetMetadata().GetResourceVersion() {
		t.Fatal("what was refused changed something")
	}
	// With the version that is there it goes; where there is nothing, a version is a conflict.
	if err := apply("one", head+`,"resourceVersion":"`+live.GetMetadata().GetResourceVersion()+`"},"data":{"a":"2"}}`); err != nil {
		t.Fatal(err)
	}
	_, err := applying(e.maps, "one", false).Patch(t.Context(), "default", "n", applyPatch,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n","resourceVersion":"7"}}`), "")
	wantError(t, err, apierr.ReasonConflict, "does not exist")
	// force means nothing elsewhere, and a status that is applied makes no object.
	_, err = applying(e.maps, "one", true).Patch(t.Context(), "default", "m", mergePatch, []byte(`{}`), "")
	wantError(t, err, apierr.ReasonInvalid, "options.force")
	_, err = applying(e.pods, "one", false).Patch(t.Context(), "default", "p", applyPatch,
		[]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"status":{"phase":"Running"}}`), "status")
	wantError(t, err, apierr.ReasonNotFound)
}

// Status and spec are applied apart, each through its own door.
func TestApplyStatus(t *testing.T) {
	e := newEnv(t)
	m := must[*corev1.Pod](t)
	const text = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]},"status":{"message":"x"}}`
	got := m(applying(e.pods, "one", false).Patch(t.Context(), "default", "p", applyPatch, []byte(text), ""))
	if got.GetStatus().GetMessage() != "" || strings.Contains(ownersOf(t, got)["one Apply"], "status") {
		t.Fatalf("status through the object: %v", got)
	}
	const status = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}},"status":{"message":"y","conditions":[{"type":"T","status":"True"}]}}`
	got = m(applying(e.pods, "agent", false).Patch(t.Context(), "default", "p", applyPatch, []byte(status), "status"))
	if got.GetStatus().GetMessage() != "y" || len(got.GetMetadata().GetLabels()) > 0 {
		t.Fatalf("object through the status: %v", got)
	}
	if own := ownersOf(t, got)["agent Apply status"]; !strings.Contains(own, `"k:{\"type\":\"T\"}"`) || strings.Contains(own, "metadata") {
		t.Fatalf("owners %s", own)
	}
	// Who writes the status otherwise takes over what differs.
	got.Status.Message = "z"
	got = m(e.pods.With(&metav1.WriteOptions{FieldManager: "kubelet"}).UpdateStatus(t.Context(), got))
	if own := ownersOf(t, got)["kubelet Update status"]; own != `{"f:status":{"f:message":{}}}` {
		t.Fatalf("owners %v", ownersOf(t, got))
	}
	// Of an object that nobody has applied no owners are kept, whoever writes it.
	plain := m(e.pods.Create(t.Context(), pod("plain")))
	plain.Status.Message = "z"
	plain = m(e.pods.With(&metav1.WriteOptions{FieldManager: "kubelet"}).UpdateStatus(t.Context(), plain))
	if len(plain.GetMetadata().GetManagedFields()) > 0 {
		t.Fatal("owners are kept of an object that nobody applied")
	}
}

// The first server-side apply owns what the last client-side one set, and takes away what the manifest no longer says.
func TestApplyTakesOverClientSide(t *testing.T) {
	e := newEnv(t)
	m := must[*corev1.ConfigMap](t)
	old := configMap("m", "")
	old.Data = map[string]string{"mine": "1", "gone": "1", "theirs": "1"}
	old.Metadata.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"mine":"1","gone":"1"}}`}
	m(e.maps.Create(t.Context(), old))
	got := m(applyMap(t, e, "trireme", `"data":{"mine":"2"}`))
	wantOwners(t, got, map[string]string{
		"trireme Apply": `{"f:data":{"f:mine":{}}}`, "before-first-apply Update": `{"f:data":{".":{},"f:theirs":{}},"f:metadata":{"f:annotations":{}}}`,
	})
	if len(got.GetData()) != 2 || len(got.GetMetadata().GetAnnotations()) != 0 {
		t.Fatalf("%v", got)
	}
}

// Input that no honest client sends: one error for that caller, quickly, and nothing stored.
func TestBadPatches(t *testing.T) {
	e := newEnv(t)
	m := must[*corev1.ConfigMap](t)
	live := m(e.maps.Create(t.Context(), configMap("m", "1")))
	big := strings.Repeat("x", 1<<20)
	many := make([]string, 10001)
	for i := range many {
		many[i] = `{"op":"add","path":"/data/a","value":"1"}`
	}
	bomb := []string{`{"op":"add","path":"/data/a","value":"` + big[:1<<19] + `"}`}
	for i := range 20 {
		bomb = append(bomb, fmt.Sprintf(`{"op":"copy","from":"/data/a","path":"/data/a%d"}`, i))
	}
	annotations := make([]string, 100000)
	for i := range annotations {
		annotations[i] = fmt.Sprintf(`"bad key %d":"x"`, i)
	}
	for name, c := range map[string]struct {
		kind  metav1.PatchType
		patch string
		want  string
	}{
		"too many operations": {jsonPatch, "[" + strings.Join(many, ",") + "]", "10001 operations"},
		"copies":              {jsonPatch, "[" + strings.Join(bomb, ",") + "]", "copy"},
		"too long":            {mergePatch, `{"data":{"a":"` + strings.Repeat(big, 3) + `"}}`, "bytes"},
		"object too long":     {mergePatch, `{"data":{"a":"` + big + `","b":"` + big[:600000] + `"}}`, "Too long"},
		"annotations":         {mergePatch, `{"metadata":{"annotations":{` + strings.Join(annotations, ",") + `}}}`, "262144 bytes"},
		"deep":                {mergePatch, strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000), "nested 9000 deep"},
		"wrong type":          {mergePatch, `{"data":{"a":7}}`, "expected a string"},
		"unknown field":       {strategicPatch, `{"dota":{"a":"7"}}`, "dota: unknown field"},
		"of another name":     {mergePatch, `{"metadata":{"name":"n"}}`, "neither name nor namespace"},
		"no object":           {mergePatch, `[]`, "not a JSON object"},
		"test fails":          {jsonPatch, `[{"op":"test","path":"/data/k","value":"2"}]`, "does not apply"},
		"owners: operation":   {mergePatch, `{"metadata":{"managedFields":[{"manager":"x","operation":"Take","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]}}`, "managedFields[0].operation"},
		"owners: type":        {mergePatch, `{"metadata":{"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"v1","fieldsType":"V9"}]}}`, "managedFields[0].fieldsType"},
		"owners: fields":      {mergePatch, `{"metadata":{"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"k:nonsense":{}}}]}}`, "managedFields[0].fieldsV1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.maps.Patch(t.Context(), "default", "m", c.kind, []byte(c.patch), "")
			wantError(t, err, apierr.ReasonInvalid, c.want)
			if n := len(err.Error()); n > 100<<10 {
				t.Errorf("the error has %d bytes", n)
			}
		})
	}
	if got := m(e.maps.Get(t.Context(), "default", "m")); !proto.Equal(got, live) {
		t.Fatalf("what was refused changed something: %v", got)
	}
}

// Who deletes again may change the policy, and a dry run shows what would be marked.
func TestDeletePolicies(t *testing.T) {
	e := newEnv(t)
	m := must[*corev1.ConfigMap](t)
	cm := configMap("m", "1")
	cm.Metadata.Finalizers = []string{"example.com/hold"}
	m(e.maps.Create(t.Context(), cm))
	for _, c := range []struct {
		options *metav1.DeleteOptions
		want    []string
		stored  bool
	}{
		{&metav1.DeleteOptions{PropagationPolicy: "Orphan", DryRun: true}, []string{"example.com/hold", "orphan"}, false},
		{&metav1.DeleteOptions{PropagationPolicy: "Foreground"}, []string{"example.com/hold", "foregroundDeletion"}, true},
		{nil, []string{"example.com/hold", "foregroundDeletion"}, true},
		{&metav1.DeleteOptions{PropagationPolicy: "Orphan"}, []string{"example.com/hold", "orphan"}, true},
		{&metav1.DeleteOptions{PropagationPolicy: "Background"}, []string{"example.com/hold"}, true},
	} {
		got := m(e.maps.Delete(t.Context(), "default", "m", c.options))
		if strings.Join(got.GetMetadata().GetFinalizers(), ",") != strings.Join(c.want, ",") || got.GetMetadata().GetDeletionTimestamp() == nil {
			t.Fatalf("%v gives %v", c.options, got.GetMetadata())
		}
		if now := m(e.maps.Get(t.Context(), "default", "m")); (now.GetMetadata().GetDeletionTimestamp() != nil) != c.stored {
			t.Fatalf("%v stored: %v", c.options, now.GetMetadata())
		}
	}
}
