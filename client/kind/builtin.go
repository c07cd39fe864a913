package kind

// Builtin reads what these packages registered with protobuf when they were loaded.
import (
	_ "trireme.dev/proto/gen/trireme/apps/v1"
	_ "trireme.dev/proto/gen/trireme/autoscaling/v1"
	_ "trireme.dev/proto/gen/trireme/autoscaling/v2"
	_ "trireme.dev/proto/gen/trireme/component/v1"
	_ "trireme.dev/proto/gen/trireme/coordination/v1"
	_ "trireme.dev/proto/gen/trireme/core/v1"
	_ "trireme.dev/proto/gen/trireme/coscheduling/v1alpha1"
	_ "trireme.dev/proto/gen/trireme/policy/v1"
	_ "trireme.dev/proto/gen/trireme/scheduling/v1"
	_ "trireme.dev/proto/gen/trireme/scheduling/v1alpha2"
	_ "trireme.dev/proto/gen/trireme/storage/v1"
)
