// Command deviced offers the devices of a machine to its node agent.
package main

import "trireme.dev/services/deviced"

func main() { deviced.Program().Main() }
