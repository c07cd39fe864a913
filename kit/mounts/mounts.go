// Package mounts finds and detaches what is mounted below a folder, for whoever is about to delete it: deleting reaches
// through mounts. It mounts nothing.
package mounts
