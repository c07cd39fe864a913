module trireme.dev/cmd/trireme

go 1.26.0
