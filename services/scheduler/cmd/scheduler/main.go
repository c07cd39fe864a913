// Command scheduler puts pods on nodes.
package main

import "trireme.dev/services/scheduler"

func main() { scheduler.Program().Main() }
