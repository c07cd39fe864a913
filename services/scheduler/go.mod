module trireme.dev/services/scheduler

go 1.26.0
