package registry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// applying is a client that applies under a name.
func applying[T client.Object](r *client.Resource[T], manager string, force bool) *client.Resource[T] {
	return r.With(&metav1.WriteOptions{FieldManager: manager, Force: force})
}

func applyMap(t *testing.T, e *env, manager, text string) (*corev1.ConfigMap, error) {
	t.Helper()
	return applying(e.maps, manager, false).Patch(t.Context(), "default", "m", metav1.PatchType_PATCH_TYPE_APPLY,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},`+text+`}`), "")
}

// ownersOf gives the fields of each owner, as "manager operation [subresource]" → FieldsV1.
func ownersOf(t *testing.T, obj client.Object) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, e := range obj.GetMetadata().GetManagedFields() {
		text, err := protojson.Marshal(e.GetFieldsV1())
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		text, _ = json.Marshal(v)
		name := e.GetManager() + " " + e.GetOperation()
		if s := e.GetSubresource(); s != "" {
			name += " " + s
		}
		out[name] = string(text)
	}
	return out
}

func wantOwners(t *testing.T, obj client.Object, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, ownersOf(t, obj)); diff != "" {
		t.Fatalf("owners (-want +got):\n%s", diff)
	}
}

// Two managers, as Kubernetes documents: what one applies is its own, a different value is a conflict that names the
// other, the same value is shared, force takes over, and what nobody names any more goes.
func TestApplyOwnership(t *testing.T) {
	e := newEnv(t)
	m := must[*corev1.ConfigMap](t)
	got := m(applyMap(t, e, "one", `"data":{"a":"1","b":"1"}`))
	wantOwners(t, got, map[string]string{"one Apply": `{"f:data":{"f:a":{},"f:b":{}}}`})

	// A no-op changes nothing.
	again := m(applyMap(t, e, "one", `"data":{"a":"1","b":"1"}`))
	if again.GetMetadata().GetResourceVersion() != got.GetMetadata().GetResourceVersion() {
		t.Error("an apply that changes nothing made a revision")
	}

	// Another value of another's field is a conflict, of each field.
	_, err := applyMap(t, e, "two", `"data":{"a":"2","b":"2","c":"2"}`)
	wantError(t, err, apierr.ReasonConflict, `conflict with "one"`, "data.a", "data.b")
	var detailed *apierr.Error
	if ok := asError(err, &detailed); !ok || len(detailed.Violations) != 2 || detailed.Violations[0].Field != "data.a" {
		t.Fatalf("violations %v", detailed)
	}

	// The same value is shared.
	got = m(applyMap(t, e, "two", `"data":{"a":"1","c":"2"}`))
	wantOwners(t, got, map[string]string{
		"one Apply": `{"f:data":{"f:a":{},"f:b":{}}}`, "two Apply": `{"f:data":{"f:a":{},"f:c":{}}}`,
	})

	// One gives a up: it stays, for two owns it. One gives b up: it goes.
	got = m(applyMap(t, e, "one", `"data":{"d":"1"}`))
	if diff := cmp.Diff(map[string]string{"a": "1", "c": "2", "d": "1"}, got.GetData()); diff != "" {
		t.Fatal(diff)
	}

	// Force takes over.
	got = m(applying(e.maps, "one", true).Patch(t.Context(), "default", "m", metav1.PatchType_PATCH_TYPE_APPLY,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"c":"1"}}`), ""))
	wantOwners(t, got, map[string]string{"one Apply": `{"f:data":{"f:c":{}}}`, "two Apply": `{"f:data":{"f:a":{}}}`})

	// Who updates takes what it changes, and a later apply meets it.
	got.Data["a"] = "9"
	got = m(e.maps.With(&metav1.WriteOptions{FieldManager: "editor"}).Update(t.Context(), got))
	wantOwners(t, got, map[string]string{"one Apply": `{"f:data":{"f:c":{}}}`, "editor Update": `{"f:data":{"f:a":{}}}`})
	_, err = applyMap(t, e, "two", `"data":{"a":"1"}`)
	wantError(t, err, apierr.ReasonConflict, `conflict with "editor" using v1 at `, "data.a")

	// One empty entry forgets all owners; the next apply then meets what was there before it.
	got = m(e.maps.Patch(t.Context(), "default", "m", metav1.PatchType_PATCH_TYPE_MERGE, []byte(`{"metadata":{"managedFields":[{}]}}`), ""))
	wantOwners(t, got, map[string]string{})
	_, err = applyMap(t, e, "two", `"data":{"a":"1"}`)
	wantError(t, err, apierr.ReasonConflict, `conflict with "before-first-apply"`, "data.a")
	got = m(applyMap(t, e, "two", `"data":{"a":"9"}`))
	wantOwners(t, got, map[string]string{
		"two Apply": `{"f:data":{"f:a":{}}}`, "before-first-apply Update": `{"f:data":{".":{},"f:a":{},"f:c":{}}}`,
	})
}

func asError(err error, into **apierr.Error) bool {
	e, ok := apierr.FromStatus(err).(*apierr.Error) //nolint:errorlint // FromStatus returns it bare
	*into = e
	return ok
}

const webDeployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{
	"replicas":2,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[
		{"name":"app","image":"app:1","ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}]}]}}}}`

// Lists of containers, ports and variables are merged by their keys, and the keys stand in the owners.
func TestApplyListMaps(t *testing.T) {
	e := newEnv(t)
	deployments := client.For[*appsv1.Deployment](e.Conn())
	m := must[*appsv1.Deployment](t)
	apply := func(manager, text string) (*appsv1.Deployment, error) {
		return applying(deployments, manager, false).Patch(t.Context(), "default", "web", metav1.PatchType_PATCH_TYPE_APPLY, []byte(text), "")
	}
	got := m(apply("one", webDeployment))
	wantOwners(t, got, map[string]string{"one Apply": `{"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},` +
		`"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{},` +
		`"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}`})

	// Another adds a variable, a port and a container.
	got = m(apply("two", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"template":{"spec":{"containers":[
		{"name":"app","ports":[{"containerPort":81,"protocol":"TCP"}],"env":[{"name":"B","value":"2"}]},
		{"name":"side","image":"side:1"}]}}}}`))
	containers := got.GetSpec().GetTemplate().GetSpec().GetContainers()
	if len(containers) != 2 || len(containers[0].GetPorts()) != 2 || len(containers[0].GetEnv()) != 2 || containers[0].GetImage() != "app:1" {
		t.Fatalf("containers %v", containers)
	}
	if got.GetMetadata().GetGeneration() != 2 {
		t.Errorf("generation %d", got.GetMetadata().GetGeneration())
	}

	// The first applies again as before: nothing of the second's is lost, and nothing changes.
	before := got.GetMetadata().GetResourceVersion()
	if got = m(apply("one", webDeployment)); got.GetMetadata().GetResourceVersion() != before {
		t.Error("an apply that changes nothing made a revision")
	}

	// The second gives all up again.
	got = m(apply("two", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"x":"y"}}}`))
	containers = got.GetSpec().GetTemplate().GetSpec().GetContainers()
	if len(containers) != 1 || len(containers[0].GetPorts()) != 1 || len(containers[0].GetEnv()) != 1 {
		t.Fatalf("containers %v", containers)
	}

	// An autoscaler sets replicas through scale; the applier gives them up, and they stay.
	apps := appsv1.NewDeploymentServiceClient(e.Conn())
	scale, err := apps.GetScale(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "web"})
	if err != nil || scale.GetSpec().GetReplicas() != 2 || scale.GetStatus().GetSelector() != "app=web" {
		t.Fatalf("scale %v, %v", scale, err)
	}
	scale.Spec.Replicas = proto.Int32(7)
	scale, err = apps.UpdateScale(t.Context(), &metav1.UpdateScaleRequest{Scale: scale, Options: &metav1.WriteOptions{FieldManager: "autoscaler"}})
	if err != nil || scale.GetSpec().GetReplicas() != 7 {
		t.Fatalf("scale %v, %v", scale, err)
	}
	_, err = apply("one", webDeployment)
	wantError(t, err, apierr.ReasonConflict, `conflict with "autoscaler" with subresource "scale" using apps/v1`, "spec.replicas")
	got = m(apply("one", strings.Replace(webDeployment, `"replicas":2,`, "", 1)))
	if got.GetSpec().GetReplicas() != 7 {
		t.Fatalf("replicas %d", got.GetSpec().GetReplicas())
	}
}
