package registry_test

import (
	"strings"
	"testing"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
)

// decoded reads one manifest.
func decoded(t *testing.T, text string) manifest.Document {
	t.Helper()
	documents, err := manifest.Decode(kind.Builtin(), "test.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != 1 {
		t.Fatalf("%d objects", len(documents))
	}
	return documents[0]
}

const (
	budget = `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a, namespace: default}, spec: `
	volume = `{apiVersion: v1, kind: PersistentVolume, metadata: {name: a}, spec: `
	claim  = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: default}, spec: `
	class  = `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: a}, `
	work   = `{apiVersion: scheduling.k8s.io/v1beta1, kind: Workload, metadata: {name: a, namespace: default}, spec: `
	share  = `{apiVersion: scheduling.trireme.dev/v1, kind: Queue, metadata: {name: a}, spec: `

	oneGi   = `resources: {requests: {storage: 1Gi}}`
	rwo     = `accessModes: [ReadWriteOnce]`
	onPath  = `capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /data}`
	gangOf3 = `{name: workers, schedulingPolicy: {gang: {minCount: 3}}}`
)

// TestStorageAndSchedulingKindsAreValidated creates objects with one thing wrong and holds what the gateway says against what
// Kubernetes says of them.
func TestStorageAndSchedulingKindsAreValidated(t *testing.T) {
	e := newEnv(t)
	for _, c := range []struct{ name, text, want string }{
		{"budget of both", budget + `{minAvailable: 1, maxUnavailable: 1}}`, "spec: Invalid value: (spec): minAvailable and maxUnavailable cannot be both set"},
		{"budget below nothing", budget + `{minAvailable: -1}}`, "spec.minAvailable: Invalid value"},
		{"budget of more than all", budget + `{maxUnavailable: 101%}}`, "spec.maxUnavailable: Invalid value: 101%: must not be greater than 100%"},
		{"budget of another policy", budget + `{minAvailable: 1, unhealthyPodEvictionPolicy: Never}}`, "spec.unhealthyPodEvictionPolicy: Unsupported value"},
		{"budget with a bad selector", budget + `{minAvailable: 1, selector: {matchExpressions: [{key: a, operator: In}]}}}`, "spec.selector.matchExpressions[0].values: Required value"},
		{"volume of no source", volume + `{capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}}`, "must specify exactly one volume type"},
		{"volume of two sources", volume + `{` + onPath + `, nfs: {server: a, path: /}}}`, "must specify exactly one volume type"},
		{"volume of no size", volume + `{accessModes: [ReadWriteOnce], hostPath: {path: /data}}}`, "spec.capacity: Required value"},
		{"volume of another capacity", volume + `{capacity: {cpu: 1}, accessModes: [ReadWriteOnce], hostPath: {path: /data}}}`, "spec.capacity: Required value: must say how much storage there is"},
		{"volume without access modes", volume + `{capacity: {storage: 1Gi}, hostPath: {path: /data}}}`, "spec.accessModes: Required value"},
		{"volume of an unknown mode", volume + `{capacity: {storage: 1Gi}, accessModes: [Often], hostPath: {path: /data}}}`, "spec.accessModes[0]: Unsupported value"},
		{"local volume of no node", volume + `{capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], local: {path: /data}}}`, "spec.nodeAffinity: Required value: Local volume requires node affinity"},
		{"claim of no size", claim + `{` + rwo + `}}`, "spec.resources: Required value"},
		{"claim without access modes", claim + `{` + oneGi + `}}`, "spec.accessModes: Required value"},
		{"claim of one pod and others", claim + `{accessModes: [ReadWriteOnce, ReadWriteOncePod], ` + oneGi + `}}`, "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"},
		{"class of nobody", class + `reclaimPolicy: Retain}`, "provisioner: Required value"},
		{"class of a third mode", class + `provisioner: x, volumeBindingMode: Later}`, "volumeBindingMode: Unsupported value"},
		{"workload of nothing", work + `{controllerRef: {kind: Job, name: a}}}`, "must specify exactly one of: `podGroupTemplates`, `compositePodGroupTemplates`"},
		{"workload of nine", work + `{podGroupTemplates: [` + strings.Repeat(`{name: t, schedulingPolicy: {basic: {}}}, `, 9) + `]}}`, "Too many: 9: must have at most 8 items"},
		{"workload of twins", work + `{podGroupTemplates: [` + gangOf3 + `, ` + gangOf3 + `]}}`, "spec.podGroupTemplates[1].name: Duplicate value"},
		{"template of both", work + `{podGroupTemplates: [{name: t, schedulingPolicy: {basic: {}, gang: {minCount: 1}}}]}}`, "must specify exactly one of: `basic`, `gang`"},
		{"template of no pods", work + `{podGroupTemplates: [{name: t, schedulingPolicy: {gang: {minCount: 0}}}]}}`, "spec.podGroupTemplates[0].schedulingPolicy.gang.minCount"},
		{"queue of no weight", share + `{weight: 0}}`, "spec.weight: Invalid value: 0: must be between 1 and 10000"},
		{"queue of half words", share + `{guaranteed: {cpu: many}}}`, "guaranteed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			documents, err := manifest.Decode(kind.Builtin(), "test.yaml", strings.NewReader(c.text))
			if err == nil {
				_, err = client.Dynamic(e.Conn(), documents[0].Kind).Create(t.Context(), documents[0].Object)
				if apierr.ReasonOf(err) != apierr.ReasonInvalid {
					t.Fatalf("got %v, want Invalid: %s", err, c.want)
				}
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestStorageAndSchedulingKindsChange updates objects: what may change does, what may not is refused by name.
func TestStorageAndSchedulingKindsChange(t *testing.T) {
	for _, c := range []struct{ name, before, after, want string }{
		{"budget grows", budget + `{minAvailable: 1}}`, budget + `{minAvailable: 50%}}`, ""},
		{"budget of other pods", budget + `{minAvailable: 1}}`, budget + `{maxUnavailable: 1, selector: {matchLabels: {a: b}}}}`, ""},
		{"volume moves", volume + `{` + onPath + `}}`, volume + `{` + strings.Replace(onPath, "/data", "/other", 1) + `}}`, "spec.hostPath"},
		{"volume of another source", volume + `{` + onPath + `}}`, volume + `{capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], nfs: {server: a, path: /}}}`, "spec.hostPath"},
		{"volume is reserved", volume + `{` + onPath + `}}`, volume + `{` + onPath + `, claimRef: {namespace: default, name: a}}}`, ""},
		{"volume turns bare", volume + `{` + onPath + `}}`, volume + `{` + onPath + `, volumeMode: Block}}`, "spec.volumeMode"},
		{"claim is bound", claim + `{` + rwo + `, ` + oneGi + `}}`, claim + `{` + rwo + `, ` + oneGi + `, volumeName: a}}`, ""},
		{"claim gets its class", claim + `{` + rwo + `, ` + oneGi + `}}`, claim + `{` + rwo + `, ` + oneGi + `, storageClassName: fast}}`, ""},
		{"claim changes its class", claim + `{` + rwo + `, ` + oneGi + `, storageClassName: slow}}`, claim + `{` + rwo + `, ` + oneGi + `, storageClassName: fast}}`, "spec.storageClassName: Forbidden: spec is immutable after creation"},
		{"claim grows before it is bound", claim + `{` + rwo + `, ` + oneGi + `}}`, claim + `{` + rwo + `, resources: {requests: {storage: 2Gi}}}}`, "spec.resources: Forbidden"},
		{"claim is bound elsewhere", claim + `{` + rwo + `, ` + oneGi + `, volumeName: a}}`, claim + `{` + rwo + `, ` + oneGi + `, volumeName: b}}`, "spec.volumeName: Forbidden"},
		{"claim is sent again", claim + `{` + rwo + `, ` + oneGi + `, volumeName: a, storageClassName: fast}}`, claim + `{` + rwo + `, ` + oneGi + `}}`, ""},
		{"class of another maker", class + `provisioner: x}`, class + `provisioner: z}`, "provisioner"},
		{"class binds later", class + `provisioner: x}`, class + `provisioner: x, volumeBindingMode: WaitForFirstConsumer}`, "volumeBindingMode"},
		{"class lets grow", class + `provisioner: x}`, class + `provisioner: x, allowVolumeExpansion: true}`, ""},
		{"workload needs more", work + `{podGroupTemplates: [` + gangOf3 + `]}}`, work + `{podGroupTemplates: [` + strings.Replace(gangOf3, "3", "4", 1) + `]}}`, ""},
		{"workload gains a template", work + `{podGroupTemplates: [` + gangOf3 + `]}}`, work + `{podGroupTemplates: [` + gangOf3 + `, {name: b, schedulingPolicy: {basic: {}}}]}}`, "spec.podGroupTemplates: Forbidden: templates may not be added or removed"},
		{"workload swaps a template", work + `{podGroupTemplates: [` + gangOf3 + `]}}`, work + `{podGroupTemplates: [{name: b, schedulingPolicy: {basic: {}}}]}}`, "spec.podGroupTemplates: Forbidden: templates may not be added or removed"},
		{"workload of another owner", work + `{controllerRef: {kind: Job, name: a}, podGroupTemplates: [` + gangOf3 + `]}}`, work + `{controllerRef: {kind: Job, name: b}, podGroupTemplates: [` + gangOf3 + `]}}`, "spec.controllerRef"},
		{"queue moves", share + `{weight: 2}}`, share + `{weight: 3, parent: root, limit: {cpu: 10}}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			before, after := decoded(t, c.before), decoded(t, c.after)
			objects := client.Dynamic(e.Conn(), before.Kind)
			if _, err := objects.Create(t.Context(), before.Object); err != nil {
				t.Fatal(err)
			}
			_, err := objects.Update(t.Context(), after.Object)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "":
				wantError(t, err, apierr.ReasonInvalid, c.want)
			}
		})
	}
}
