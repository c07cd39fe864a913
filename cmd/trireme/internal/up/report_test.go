package up

import (
	"io"
	"testing"
	"time"
)

func TestClusterThatIsGivenUpIsNotReady(t *testing.T) {
	l := layout{dir: t.TempDir()} // without a folder for the report
	c := &cluster{
		cfg: Config{Timeout: time.Millisecond}, layout: l, nodes: []string{"sim-0"},
		progress: &progress{w: io.Discard, start: time.Now()},
	}
	ready := false
	if err := c.report(t.Context(), func() { ready = true }); err == nil {
		t.Fatal("no error without a folder for the report")
	}
	if ready {
		t.Error("ready was told of a cluster that is given up: a detached up would say that all is well")
	}
}
