package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"trireme.dev/kit/ociarchive"
)

// gpuWorker is the image of examples/gpu-gang.yaml: one static program on an empty root.
func gpuWorker() (ociarchive.Spec, error) {
	dir, err := os.MkdirTemp("", "gpu-worker")
	if err != nil {
		return ociarchive.Spec{}, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "gpu-worker")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./examples/gpu-worker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		return ociarchive.Spec{}, fmt.Errorf("build examples/gpu-worker: %w\n%s", err, out)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return ociarchive.Spec{}, err
	}
	return ociarchive.Spec{
		Name:       "trireme.dev/gpu-worker:latest",
		Files:      map[string]ociarchive.File{"/gpu-worker": {Data: program, Mode: 0o755}},
		Entrypoint: []string{"/gpu-worker"},
	}, nil
}
