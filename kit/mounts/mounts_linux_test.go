package mounts

import (
	"slices"
	"strings"
	"testing"
)

func TestMountsBehindALongLineAreFound(t *testing.T) {
	const dir = "/var/lib/trireme"
	overlay := "1 0 0:1 / " + dir + "/a\\040b rw - overlay overlay rw,lowerdir="
	last := "\n2 0 0:2 / " + dir + "/c rw - tmpfs tmpfs rw\n3 0 0:3 / " + dir + "-other rw - tmpfs tmpfs rw\n"
	got, err := mountsIn(strings.NewReader(overlay+strings.Repeat("l:", 40<<10)+last), dir)
	if err != nil || !slices.Equal(got, []string{dir + "/a b", dir + "/c"}) {
		t.Errorf("%q, %v", got, err)
	}
	// A list that cannot be read whole is none.
	if got, err := mountsIn(strings.NewReader(overlay+strings.Repeat("l", maxMountLine)+last), dir); err == nil {
		t.Errorf("%q of a list that is too long to read", got)
	}
}
