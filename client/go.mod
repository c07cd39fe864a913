module trireme.dev/client

go 1.26.0
