package join

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitsGrowAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts()
		for _, want := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
			a.wrong("peer")
			if got := a.wait("peer"); got != time.Duration(want)*time.Second {
				t.Errorf("wait %s, want %ds", got, want)
			}
			if got := a.wait("other"); got != 0 {
				t.Errorf("another peer waits %s", got)
			}
		}
		time.Sleep(time.Minute)
		if got := a.wait("peer"); got != 0 {
			t.Errorf("wait %s after a minute", got)
		}
		a.right("peer")
		a.wrong("peer")
		if got := a.wait("peer"); got != time.Second {
			t.Errorf("after a right one it begins with %s", got)
		}
	})
}

func TestMemoryOfThePeersIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts()
		for i := range 3 * maxPeers {
			a.wrong(fmt.Sprint(i))
			if len(a.peers) > maxPeers {
				t.Fatalf("%d peers are remembered", len(a.peers))
			}
		}
		if last := fmt.Sprint(3*maxPeers - 1); a.wait(last) == 0 {
			t.Error("the last one is forgotten")
		}
	})
}
