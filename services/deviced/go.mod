module trireme.dev/services/deviced

go 1.26.0

require (
	github.com/fsnotify/fsnotify v1.10.1
	github.com/spf13/pflag v1.1.0
	go.uber.org/goleak v1.3.0
	google.golang.org/grpc v1.85.0
	k8s.io/apimachinery v0.37.2
	k8s.io/kubelet v0.37.2
	pgregory.net/rapid v1.3.0
	sigs.k8s.io/yaml v1.6.0
	trireme.dev/client v0.0.0
	trireme.dev/kit v0.0.0
	trireme.dev/proto v0.0.0
)

require (
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	trireme.dev/client => ../../client
	trireme.dev/kit => ../../kit
	trireme.dev/proto => ../../proto
)
