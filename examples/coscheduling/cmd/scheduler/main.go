// Command scheduler is Trireme's scheduler with one plugin more.
package main

import (
	"trireme.dev/examples/coscheduling"
	"trireme.dev/services/scheduler"
)

func main() { scheduler.Program(coscheduling.Factory()).Main() }
