// Images writes the image archives of the examples and tests: gpu-worker.tar, which is examples/gpu-worker built for
// this machine, and busybox.tar, a shell made of the machine's static busybox. It must run in the repository's root.
//
//	images -out build/images            # all
//	images -out build/images gpu-worker # one
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"trireme.dev/kit/ociarchive"
)

// builders of the images, by name.
var builders = map[string]func() (ociarchive.Spec, error){
	"busybox":    busybox,
	"gpu-worker": gpuWorker,
}

func main() {
	out := flag.String("out", "build/images", "`folder` to write to")
	flag.Parse()
	names := flag.Args()
	if len(names) == 0 {
		names = []string{"gpu-worker", "busybox"}
	}
	for _, name := range names {
		if err := write(*out, name); err != nil {
			fmt.Fprintf(os.Stderr, "images: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// write builds one image into the folder. The archive is complete or not there.
func write(out, name string) error {
	build, ok := builders[name]
	if !ok {
		known := make([]string, 0, len(builders))
		for k := range builders {
			known = append(known, k)
		}
		slices.Sort(known)
		return fmt.Errorf("unknown image: want one of %s", strings.Join(known, ", "))
	}
	spec, err := build()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	path := filepath.Join(out, name+".tar")
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
