module trireme.dev/kit

go 1.26.0
