//go:build !linux

package node

import (
	"errors"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func measure(string) (Machine, error) {
	return Machine{}, errors.New("containers run on Linux only: simulate nodes here")
}

func measurePressure(string) pressure { return pressure{} }

func identify(*corev1.NodeSystemInfo) {}
