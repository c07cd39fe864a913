package authorization

import "trireme.dev/services/apiserver/internal/request"

// rule allows verbs on resources. Words are separated by spaces.
type rule struct {
	verbs string
	// resources as pods, pods/status, deployments.apps/scale. "*" is every resource, "*/status" that part of every one;
	// neither is a Secret, which must be named.
	resources string
	// namespace that the rule holds in; all where it is empty.
	namespace string
}

const (
	read  = "get list watch"
	write = "create update patch delete"
)

// policy says what users who are no nodes and not in system:masters may do. What is not here is refused.
//
// A component's lines are what it calls, of kinds that it works on. Lists and watches of everything but Secrets are given to
// the scheduler and to controllers, because plugins and the garbage collector follow new kinds without a change here.
var policy = map[string][]rule{
	"system:trireme-scheduler": {
		{verbs: read, resources: "*"},
		{verbs: "create", resources: "pods/binding pods/eviction"},
		{verbs: "delete", resources: "pods"}, // preemption
		{verbs: "update patch", resources: "pods/status podgroups.scheduling.k8s.io/status queues.scheduling.trireme.dev/status components.component.trireme.dev/status"},
		{verbs: "update patch", resources: "persistentvolumeclaims persistentvolumes"}, // binding of volumes
		{verbs: "create update patch", resources: "events"},
		{verbs: write, resources: "leases.coordination.k8s.io", namespace: "kube-system"},
		{verbs: write, resources: "components.component.trireme.dev"},
	},
	"system:trireme-controller": {
		// The garbage collector and the end of namespaces reach everything, Secrets too.
		{verbs: read + " update patch delete deletecollection", resources: "* secrets"},
		{verbs: "update patch", resources: "*/status */scale"},
		{verbs: "create", resources: "pods replicasets.apps podgroups.scheduling.k8s.io"},
		{verbs: "create", resources: "configmaps serviceaccounts"},
		{verbs: "create", resources: "pods/eviction"},
		{verbs: "create", resources: "events"},
		{verbs: "create", resources: "leases.coordination.k8s.io", namespace: "kube-system"},
		{verbs: "create", resources: "components.component.trireme.dev"},
	},
	request.UserGateway: {
		{verbs: read + " " + write, resources: "components.component.trireme.dev"},
		{verbs: "update patch", resources: "components.component.trireme.dev/status"},
	},
}

// open are the methods that need no permission, by whom they may be called: what does no harm, and what must be possible
// before anybody has a permission. A path that ends in a slash is a whole service.
var open = map[string]audience{
	"/grpc.health.v1.Health/":                        authenticated,
	"/grpc.reflection.v1.ServerReflection/":          authenticated,
	"/grpc.reflection.v1alpha.ServerReflection/":     authenticated,
	"/trireme.authorization.v1.AccessReviewService/": authenticated,
	"/trireme.node.v1.JoinService/GetClusterInfo":    authenticated,
	// It checks the token that it is called with.
	"/trireme.node.v1.JoinService/Join": everybody,
	// It looks at the certificate itself.
	"/trireme.node.v1.JoinService/Renew": nodes,
}

// audience is who may call an open method.
type audience int

const (
	everybody audience = iota
	authenticated
	nodes
)

// nodeRules are what the agent of a node may do. Where a check is given, it must also find that the object is the node's, or
// is named by one of the node's pods.
var nodeRules = []nodeRule{
	// Agents keep the routes to the pods of other nodes, so they see all of them.
	{verbs: read, resources: "nodes"},
	{verbs: "create update patch", resources: "nodes nodes/status", check: itself},
	{verbs: "get " + write, resources: "leases.coordination.k8s.io", check: ownLease},
	{verbs: "get", resources: "pods", check: ownPod},
	{verbs: "list watch", resources: "pods", check: selectsOwnPods},
	// Which pods may be written, and what of them, is decided when the pod is at hand: by admission's NodeRestriction.
	{verbs: "create delete", resources: "pods"},
	{verbs: "update patch", resources: "pods/status"},
	{verbs: "create", resources: "pods/eviction"},
	{verbs: "get list watch", resources: "configmaps secrets", check: named},
	{verbs: "get", resources: "serviceaccounts", check: named},
	{verbs: "get create update patch", resources: "events"},
}
