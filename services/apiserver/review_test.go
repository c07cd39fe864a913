package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	authorizationv1 "trireme.dev/proto/gen/trireme/authorization/v1"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// A review says what authorization says to the call itself, in the same words.
func TestWhatCallersAreToldThatTheyMayDo(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	admin := c.admin()
	if _, err := client.For[*corev1.Pod](admin).Create(ctx, boundPod("p", "a", "mine", "map")); err != nil {
		t.Fatal(err)
	}
	conns := map[string]*grpc.ClientConn{
		"admin": admin, "node": c.node("a"), "other": c.node("b"),
		"scheduler": c.as("system:trireme-scheduler", nil), "controller": c.as("system:trireme-controller", nil), "somebody": c.as("somebody", nil),
	}
	type question = authorizationv1.SelfSubjectAccessReviewRequest
	for _, tt := range []struct {
		who    string
		ask    *question
		reason string // empty where the answer is yes
	}{
		{"admin", &question{Verb: "*", Resource: "*"}, ""},
		{"admin", &question{Verb: "get", Resource: "unheard-of", Namespace: "x"}, ""},
		{"node", &question{Verb: "get", Resource: "secrets", Namespace: "default", Name: "mine"}, ""},
		{"other", &question{Verb: "get", Resource: "secrets", Namespace: "default", Name: "mine"},
			`secrets "mine" is forbidden: User "system:node:b" cannot get resource "secrets" in API group "" in the namespace "default": no pod of node "b" names it`},
		{"node", &question{Verb: "list", Resource: "secrets", Namespace: "default"}, `node "a" sees one of them at a time`},
		{"node", &question{Verb: "get", Resource: "pods", Namespace: "default", Name: "p"}, ""},
		{"other", &question{Verb: "get", Resource: "pods", Namespace: "default", Name: "p"}, `the pod is not bound to node "b"`},
		{"node", &question{Verb: "get", Resource: "pods", Namespace: "default", Name: "none"}, `Pod "default/none" not found`},
		{"node", &question{Verb: "list", Resource: "pods", FieldSelector: "spec.nodeName=a"}, ""},
		{"node", &question{Verb: "list", Resource: "pods", FieldSelector: "spec.nodeName=b"}, "spec.nodeName=a only"},
		{"node", &question{Verb: "update", Resource: "nodes", Subresource: "status", Name: "a"}, ""},
		{"node", &question{Verb: "update", Resource: "nodes", Subresource: "status", Name: "b"}, `node "a" may write no other node`},
		{"scheduler", &question{Verb: "create", Resource: "pods", Subresource: "binding", Namespace: "default"}, ""},
		{"scheduler", &question{Verb: "create", Resource: "pods", Namespace: "default"}, `User "system:trireme-scheduler" cannot create resource "pods"`},
		{"scheduler", &question{Verb: "patch", Group: "scheduling.k8s.io", Resource: "podgroups", Subresource: "status", Namespace: "default", Name: "g"}, ""},
		{"scheduler", &question{Verb: "patch", Group: "scheduling.k8s.io", Resource: "podgroups", Namespace: "default", Name: "g"}, `cannot patch resource "podgroups"`},
		{"scheduler", &question{Verb: "list", Resource: "secrets"}, `cannot list resource "secrets" in API group "" at the cluster scope`},
		{"scheduler", &question{Verb: "list", Resource: "*"}, `cannot list resource "*"`},
		{"scheduler", &question{Verb: "list", Resource: "pods"}, ""},
		{"scheduler", &question{Verb: "*", Resource: "pods"}, `cannot * resource "pods"`},
		{"scheduler", &question{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: "l"}, ""},
		{"scheduler", &question{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "default", Name: "l"},
			`leases.coordination.k8s.io "l" is forbidden: User "system:trireme-scheduler" cannot update resource "leases" in API group "coordination.k8s.io" in the namespace "default"`},
		{"controller", &question{Verb: "list", Resource: "*"}, ""},
		{"controller", &question{Verb: "update", Group: "apps", Resource: "deployments", Subresource: "scale", Namespace: "default"}, ""},
		{"somebody", &question{Verb: "get", Resource: "pods", Namespace: "default"}, `User "somebody" cannot get resource "pods"`},
	} {
		t.Run(fmt.Sprint(tt.who, " ", tt.ask), func(t *testing.T) {
			got, err := authorizationv1.NewAccessReviewServiceClient(conns[tt.who]).SelfSubjectAccessReview(ctx, tt.ask)
			if err != nil {
				t.Fatal(err)
			}
			if got.GetAllowed() != (tt.reason == "") || !strings.Contains(got.GetReason(), tt.reason) || got.GetAllowed() && got.GetReason() != "" {
				t.Errorf("told %v, want the reason %q", got, tt.reason)
			}
		})
	}
	for _, ask := range []*question{{}, {Verb: "get"}, {Resource: "pods"}} {
		_, err := authorizationv1.NewAccessReviewServiceClient(admin).SelfSubjectAccessReview(ctx, ask)
		want(t, fmt.Sprintf("half a question %v", ask), err, apierr.ReasonInvalid)
	}
}

// What concerns the store as a whole is for system:masters: nobody else reaches a method of it.
func TestMaintenanceIsForMasters(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	calls := map[string]func(componentv1.MaintenanceServiceClient) error{
		"Snapshot": func(m componentv1.MaintenanceServiceClient) error {
			return first(m.Snapshot(ctx, &componentv1.SnapshotRequest{}))
		},
		"Status": func(m componentv1.MaintenanceServiceClient) error {
			_, err := m.Status(ctx, &componentv1.StatusRequest{})
			return err
		},
		"Defragment": func(m componentv1.MaintenanceServiceClient) error {
			_, err := m.Defragment(ctx, &componentv1.DefragmentRequest{})
			return err
		},
		"MigrateStorage": func(m componentv1.MaintenanceServiceClient) error {
			return first(m.MigrateStorage(ctx, &componentv1.MigrateStorageRequest{}))
		},
	}
	methods := componentv1.MaintenanceService_ServiceDesc
	if n := len(methods.Methods) + len(methods.Streams); n != len(calls) {
		t.Errorf("%d methods of maintenance, %d are tried", n, len(calls))
	}
	for who, conn := range map[string]*grpc.ClientConn{
		"scheduler": c.as("system:trireme-scheduler", nil), "controller": c.as("system:trireme-controller", nil),
		"node": c.node("a"), "somebody": c.as("somebody", []string{"admins"}),
	} {
		for name, call := range calls {
			want(t, who+" calls "+name, call(componentv1.NewMaintenanceServiceClient(conn)), apierr.ReasonForbidden)
		}
	}
	admin := componentv1.NewMaintenanceServiceClient(c.admin())
	for name, call := range calls {
		want(t, "admin calls "+name, call(admin), allowed)
	}
}
