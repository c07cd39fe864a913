module trireme.dev/test

go 1.26.0
