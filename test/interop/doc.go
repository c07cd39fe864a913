// Package interop holds what Trireme reads and prints against what Kubernetes reads and prints: the fixtures and the Go
// types of k8s.io/api, and manifests as people keep them.
//
// It has tests only. They need no cluster.
package interop
