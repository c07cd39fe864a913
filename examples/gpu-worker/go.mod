module trireme.dev/examples/gpu-worker

go 1.26.0
