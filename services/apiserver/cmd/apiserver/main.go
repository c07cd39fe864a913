// Command apiserver is the gateway: it serves every kind and keeps their objects in etcd.
package main

import "trireme.dev/services/apiserver"

func main() { apiserver.Program().Main() }
