module trireme.dev/services/nodeagent

go 1.26.6

require (
	github.com/distribution/reference v0.6.0
	github.com/fsnotify/fsnotify v1.10.1
	go.uber.org/goleak v1.3.0
	trireme.dev/kit v0.0.0
)

require (
	github.com/containerd/containerd/v2 v2.4.2 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/nftables v0.3.0 // indirect
	github.com/mdlayher/netlink v1.7.3-0.20250113171957-fbb4dce95f42 // indirect
	github.com/mdlayher/socket v0.6.0 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace trireme.dev/proto => ../../proto

replace trireme.dev/client => ../../client

replace trireme.dev/kit => ../../kit
