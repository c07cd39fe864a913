// Package compose runs deploy/compose as users do: `docker compose up` of the files in the tree, the lines of its README,
// stopping and starting, losing parts. Its tests have the build tag compose and need root, docker and the images that
// `make images-services` writes; make test-compose sees to all of it.
//
// They bring their own docker daemon, in namespaces of its own: ports that are taken on the machine are free in there, and
// when its first process ends, nothing of it is left.
package compose
