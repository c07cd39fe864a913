// Command controller runs the controllers of a cluster.
package main

import "trireme.dev/services/controller"

func main() { controller.Program().Main() }
