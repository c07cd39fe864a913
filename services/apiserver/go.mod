module trireme.dev/services/apiserver

go 1.26.0
