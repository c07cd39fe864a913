module trireme.dev/services/nodeagent

go 1.26.0
