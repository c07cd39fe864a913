// Package e2e runs scenarios against whole clusters made of the real binary: `trireme up` starts one, numbered scripts
// use it as a person would, and `trireme down --purge` must leave nothing behind.
//
// A scenario is a folder of testscript files that run in order on one cluster. Besides testscript's own commands they
// have:
//
//	eventually DURATION REGEXP COMMAND...   repeat COMMAND until it succeeds and its output matches
//	kill9 SERVICE                           SIGKILL one of the cluster's services
//	restarted SERVICE                       wait until a service killed by kill9 has another pid
//	leftnothing                             wait until no trace of any pod is left on the machine
package e2e
