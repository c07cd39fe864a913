package main

import "trireme.dev/kit/ociarchive"

// gpuWorker is the image of examples/gpu-gang.yaml: one static program on an empty root.
func gpuWorker(o options) (ociarchive.Spec, error) {
	program, err := program("./examples/gpu-worker", o)
	if err != nil {
		return ociarchive.Spec{}, err
	}
	return ociarchive.Spec{
		Name:       "trireme.dev/gpu-worker:latest",
		Files:      map[string]ociarchive.File{"/gpu-worker": program},
		Entrypoint: []string{"/gpu-worker"},
	}, nil
}
