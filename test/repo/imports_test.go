package repo

import (
	"strings"
)

const (
	ours    = "trireme.dev/"
	apitest = "trireme.dev/services/apiserver/apitest"
)

// layers holds the direction of imports: services and cmd build on kit, kit on client, client on proto. No service
// imports another; a test may have the gateway in memory.
func layers(t *tree) []string {
	var out []string
	for _, f := range t.files {
		may := mayImport(f.path)
		for _, i := range f.imports() {
			switch {
			case !strings.HasPrefix(i, ours):
				continue
			case i == apitest:
				// For tests, and for those who write them.
				if f.test || under(f.path, "test", "services/apiserver") {
					continue
				}
			case under(i, may...):
				continue
			}
			out = append(out, f.path+": imports "+i)
		}
	}
	return out
}

// mayImport lists the packages of ours, folders included, that a file may import.
func mayImport(file string) []string {
	module, rest, _ := strings.Cut(file, "/")
	switch module {
	case "proto":
		return []string{ours + "proto"}
	case "client":
		return []string{ours + "client", ours + "proto"}
	case "kit":
		return []string{ours + "kit", ours + "client", ours + "proto"}
	case "services":
		name, _, _ := strings.Cut(rest, "/")
		return []string{ours + "kit", ours + "client", ours + "proto", ours + "services/" + name}
	case "cmd":
		return []string{ours + "kit", ours + "client", ours + "proto", ours + "cmd", ours + "services"}
	case "examples":
		if under(rest, "coscheduling") { // as a third party's module would
			return []string{ours + "client", ours + "proto", ours + "services/scheduler", ours + "examples/coscheduling"}
		}
	case "test":
		return []string{ours + "kit", ours + "client", ours + "proto", ours + "cmd", ours + "services", ours + "test"}
	}
	return nil
}

// engine is a dependency that only some places may know.
type engine struct {
	packages []string
	places   []string
	// tests may import it anywhere.
	tests bool
}

func engineRules() []engine {
	return []engine{
		{packages: []string{"go.etcd.io"}, places: []string{"services/apiserver/internal/storage", "test"}},
		{
			packages: []string{"github.com/containerd/containerd"},
			places:   []string{"services/nodeagent/internal/runtime/containerd", "test"},
		},
		{
			packages: []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters"},
			places:   []string{"kit/telemetry", "test"},
		},
		{
			packages: []string{"google.golang.org/grpc/codes", "google.golang.org/grpc/status"},
			places: []string{
				"client/apierr", "kit/rpc", "services/apiserver/internal/gateway", "proto/gen", "test",
				"client/internal/gatewaytest",              // answers as the gateway does
				"services/apiserver/internal/storage/etcd", // etcd's own errors are codes
			},
			tests: true,
		},
	}
}

// engines keeps etcd, containerd, OpenTelemetry's SDK and gRPC's codes in their places.
func engines(t *tree) []string {
	var out []string
	for _, f := range t.files {
		for _, i := range f.imports() {
			for _, e := range engineRules() {
				if !under(i, e.packages...) || under(f.path, e.places...) || e.tests && f.test {
					continue
				}
				out = append(out, f.path+": imports "+i)
			}
		}
	}
	return out
}
