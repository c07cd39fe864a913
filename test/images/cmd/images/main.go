// Images writes image archives without docker. It must run in the repository's root.
//
//	images -out build/images            # those of examples and tests: gpu-worker, and busybox from the machine's static one
//	images -out build/images gpu-worker # one
//	images -out build/images compose    # those of deploy/compose: the services, and etcd and Jaeger
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"trireme.dev/kit/ociarchive"
)

// options of the builders.
type options struct {
	// out receives the archives. runtimes and tools are the folders with what was built from tools/.
	out, runtimes, tools string
	// version that the programs say they are.
	version string
}

type builder func(options) (ociarchive.Spec, error)

// builders of the images, by name.
func builders() map[string]builder {
	all := map[string]builder{
		"busybox":    busybox,
		"gpu-worker": gpuWorker,
		"node":       node,
		"trireme":    cli,
		"etcd":       etcd,
		"jaeger":     jaeger,
	}
	for _, name := range services {
		all[name] = service(name)
	}
	return all
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "build/images", "`folder` to write to")
	flag.StringVar(&o.version, "version", "", "`version` that the services say they are")
	flag.StringVar(&o.runtimes, "runtimes", "build/runtime/bin", "`folder` with containerd, its shim and runc")
	flag.StringVar(&o.tools, "tools", "build/tools", "`folder` with etcd and jaeger")
	flag.Parse()
	names := flag.Args()
	switch {
	case len(names) == 0:
		names = []string{"gpu-worker", "busybox"}
	case len(names) == 1 && names[0] == "compose":
		names = composeImages()
	}
	for _, name := range names {
		if err := write(name, o); err != nil {
			fmt.Fprintf(os.Stderr, "images: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// write builds one image into the folder. The archive is complete or not there.
func write(name string, o options) error {
	known := builders()
	build, ok := known[name]
	if !ok {
		return fmt.Errorf("unknown image: want one of %s, or compose", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	spec, err := build(o)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	path := filepath.Join(o.out, name+".tar")
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	err = ociarchive.Write(f, spec)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}
