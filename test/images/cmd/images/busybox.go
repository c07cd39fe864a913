package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"trireme.dev/kit/ociarchive"
)

// busybox is an image with a shell.
func busybox(options) (ociarchive.Spec, error) {
	program, path, err := findBusybox()
	if err != nil {
		return ociarchive.Spec{}, err
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
		return ociarchive.Spec{}, fmt.Errorf("list what %s has: %w", path, err)
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			files["/bin/"+applet] = ociarchive.File{Link: "busybox"}
		}
	}
	return ociarchive.Spec{
		Name: "trireme.dev/busybox:1", Files: files, Cmd: []string{"sh"}, Env: []string{"PATH=/bin"},
	}, nil
}

// findBusybox reads the first static busybox of the machine.
func findBusybox() (program []byte, path string, err error) {
	places := []string{"/bin/busybox", "/usr/bin/busybox", "/sbin/busybox", "/bin/busybox.static"}
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
