module trireme.dev/services/scheduler

go 1.26.0

require (
	github.com/spf13/pflag v1.0.10
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
	trireme.dev/client v0.0.0
	trireme.dev/kit v0.0.0
	trireme.dev/proto v0.0.0
)

replace (
	trireme.dev/client => ../../client
	trireme.dev/kit => ../../kit
	trireme.dev/proto => ../../proto
)
