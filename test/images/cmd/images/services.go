package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"trireme.dev/kit/ociarchive"
)

// The images of deploy/compose, the same as its Dockerfile makes where a registry is at hand.

// services are the images of one service each.
var services = []string{"apiserver", "scheduler", "controller", "deviced"}

// service is a service's own binary on an empty root.
func service(name string) builder {
	return func(o options) (ociarchive.Spec, error) { return onScratch(name, "./services/"+name+"/cmd/"+name, o) }
}

// cli is the whole system in one binary; compose takes it to make certificates.
func cli(o options) (ociarchive.Spec, error) { return onScratch("trireme", "./cmd/trireme", o) }

// node is the node agent with the containerd that it runs.
func node(o options) (ociarchive.Spec, error) {
	spec, err := onScratch("node", "./services/nodeagent/cmd/nodeagent", o)
	if err != nil {
		return spec, err
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		data, err := os.ReadFile(filepath.Join(o.runtimes, name))
		if err != nil {
			return spec, fmt.Errorf("%w (make runtimes)", err)
		}
		spec.Files["/bin/"+name] = ociarchive.File{Data: data, Mode: 0o755}
	}
	spec.Entrypoint = append(spec.Entrypoint, "--runtime-bin=/bin")
	return spec, nil
}

// etcd and jaeger stand for the published images where no registry is at hand; those have more in them, like Jaeger's
// pages.
func etcd(o options) (ociarchive.Spec, error) {
	spec, err := tool("etcd", o)
	if err != nil {
		return spec, err
	}
	// compose asks it for health.
	data, err := os.ReadFile(filepath.Join(o.tools, "etcdctl"))
	spec.Files["/bin/etcdctl"] = ociarchive.File{Data: data, Mode: 0o755}
	return spec, err
}

func jaeger(o options) (ociarchive.Spec, error) {
	spec, err := tool("jaeger", o)
	spec.Env = append(spec.Env, "JAEGER_LISTEN_HOST=0.0.0.0")
	return spec, err
}

func tool(name string, o options) (ociarchive.Spec, error) {
	data, err := os.ReadFile(filepath.Join(o.tools, name))
	if err != nil {
		return ociarchive.Spec{}, fmt.Errorf("%w (make images-services builds it)", err)
	}
	return scratch(name, ociarchive.File{Data: data, Mode: 0o755}, o)
}

func onScratch(name, pkg string, o options) (ociarchive.Spec, error) {
	file, err := program(pkg, o)
	if err != nil {
		return ociarchive.Spec{}, err
	}
	return scratch(name, file, o)
}

// scratch is an image of one program and what every program may want: a folder for temporary files, the CAs of the
// world, time zones as Go reads them, and healthcheck.
func scratch(name string, file ociarchive.File, o options) (ociarchive.Spec, error) {
	health, err := program("./kit/cmd/healthcheck", o)
	if err != nil {
		return ociarchive.Spec{}, err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return ociarchive.Spec{}, fmt.Errorf("go env GOROOT: %w", err)
	}
	zones, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return ociarchive.Spec{}, err
	}
	authorities, err := readAuthorities()
	if err != nil {
		return ociarchive.Spec{}, err
	}
	return ociarchive.Spec{
		Name: "trireme.dev/" + name + ":local",
		Files: map[string]ociarchive.File{
			"/" + name:                           file,
			"/healthcheck":                       health,
			"/tmp":                               {Dir: true, Mode: 0o1777},
			"/usr/share/zoneinfo.zip":            {Data: zones},
			"/etc/ssl/certs/ca-certificates.crt": {Data: authorities},
			"/etc/nsswitch.conf":                 {Data: []byte("hosts: files dns\n")},
		},
		Env:        []string{"PATH=/bin:/", "ZONEINFO=/usr/share/zoneinfo.zip"},
		Entrypoint: []string{"/" + name},
	}, nil
}

// readAuthorities reads the machine's CAs, where Debian, Fedora and macOS keep them.
func readAuthorities() ([]byte, error) {
	places := []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}
	for _, path := range places {
		if data, err := os.ReadFile(path); err == nil {
			return data, nil
		}
	}
	return nil, fmt.Errorf("no CA certificates in %s (Debian: apt-get install ca-certificates)", strings.Join(places, ", "))
}

// program builds a package of the workspace into a static program for Linux. It is kept, so that go build can tell that it
// is current.
func program(pkg string, o options) (ociarchive.File, error) {
	binary := filepath.Join(o.out, "programs", filepath.Base(pkg))
	flags := "-ldflags=-s -w -X trireme.dev/kit/telemetry.version=" + o.version
	build := exec.Command("go", "build", "-trimpath", flags, "-o", binary, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		return ociarchive.File{}, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	data, err := os.ReadFile(binary)
	return ociarchive.File{Data: data, Mode: 0o755}, err
}

// composeImages are all images of deploy/compose that are made here.
func composeImages() []string {
	return append(slices.Clone(services), "node", "trireme", "etcd", "jaeger")
}
