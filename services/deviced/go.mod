module trireme.dev/services/deviced

go 1.26.0
