module trireme.dev/services/controller

go 1.26.0
