// Busybox-image writes an image with a shell, for tests and for trying things: trireme.dev/busybox:latest, made of the
// static busybox of this machine (Debian: busybox-static).
//
//	busybox-image -o busybox.tar && trireme image load busybox.tar
package main

import (
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"trireme.dev/kit/ociarchive"
)

func main() {
	name := flag.String("name", "trireme.dev/busybox:latest", "the image's `reference`")
	out := flag.String("o", "", "the archive's `file`; standard output where empty")
	busybox := flag.String("busybox", "", "a static busybox; found in the usual places where empty")
	flag.Parse()
	if err := run(*name, *out, *busybox); err != nil {
		fmt.Fprintln(os.Stderr, "busybox-image:", err)
		os.Exit(1)
	}
}

func run(name, out, busybox string) error {
	program, path, err := find(busybox)
	if err != nil {
		return err
	}
	files := map[string]ociarchive.File{
		"/bin/busybox": {Data: program, Mode: 0o755},
		"/tmp":         {Dir: true, Mode: 0o1777},
		"/root":        {Dir: true, Mode: 0o700},
		"/etc/passwd":  {Data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		"/etc/group":   {Data: []byte("root:x:0:\nnogroup:x:65534:\n")},
	}
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		return fmt.Errorf("list what %s has: %w", path, err)
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			files["/bin/"+applet] = ociarchive.File{Link: "busybox"}
		}
	}
	var archive bytes.Buffer
	if err := ociarchive.Write(&archive, ociarchive.Spec{
		Name: name, Files: files, Cmd: []string{"sh"}, Env: []string{"PATH=/bin"},
	}); err != nil {
		return err
	}
	if out == "" {
		_, err := os.Stdout.Write(archive.Bytes())
		return err
	}
	return os.WriteFile(out, archive.Bytes(), 0o644)
}

// find reads the first static busybox.
func find(busybox string) (program []byte, path string, err error) {
	places := []string{"/bin/busybox", "/usr/bin/busybox", "/sbin/busybox", "/bin/busybox.static"}
	if busybox != "" {
		places = []string{busybox}
	}
	for _, path := range places {
		program, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		file, err := elf.NewFile(bytes.NewReader(program))
		if err != nil {
			continue
		}
		if libraries, err := file.ImportedLibraries(); err == nil && len(libraries) == 0 {
			return program, path, nil
		}
	}
	return nil, "", fmt.Errorf("no static busybox in %s (Debian: apt-get install busybox-static)", strings.Join(places, ", "))
}
