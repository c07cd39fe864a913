//go:build !linux

package up

import (
	"context"
	"errors"
	"runtime"
)

// checkCommand is the hidden command that tries what a sandbox needs; there are none here.
const checkCommand = "check-sandbox"

// lacksForContainers lists what this machine lacks to run containers.
func lacksForContainers(context.Context, string, string) []string {
	return []string{"containers need Linux, this is " + runtime.GOOS}
}

func checkSandbox(string) error { return errors.New("containers need Linux") }
