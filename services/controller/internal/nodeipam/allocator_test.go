package nodeipam

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestBlocksAreInOrderAndRunOut(t *testing.T) {
	a, err := NewAllocator(netip.MustParsePrefix("10.64.0.0/22"), 24)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Occupy(netip.MustParsePrefix("10.64.1.0/24")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.64.0.0/24", "10.64.2.0/24", "10.64.3.0/24"} {
		got, err := a.Allocate()
		if err != nil || got.String() != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	if got, err := a.Allocate(); err == nil {
		t.Errorf("got %s out of a full range", got)
	}
	a.Release(netip.MustParsePrefix("10.64.2.0/24"))
	if got, err := a.Allocate(); err != nil || got.String() != "10.64.2.0/24" {
		t.Errorf("got %s, %v, want the block that was released", got, err)
	}
}

func TestRangesThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		cluster string
		bits    int
	}{{"10.64.0.1/16", 24}, {"10.64.0.0/16", 15}, {"10.64.0.0/16", 31}, {"10.0.0.0/8", 25}, {"fd00::/64", 80}} {
		if _, err := NewAllocator(netip.MustParsePrefix(c.cluster), c.bits); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
	a, err := NewAllocator(netip.MustParsePrefix("10.64.0.0/16"), 24)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range []string{"10.65.0.0/24", "10.64.0.0/25", "10.64.0.1/24"} {
		if err := a.Occupy(netip.MustParsePrefix(block)); err == nil {
			t.Errorf("%s occupied", block)
		}
	}
}

func TestNoBlockIsHeldTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, err := NewAllocator(netip.MustParsePrefix("10.64.0.0/20"), 24)
		if err != nil {
			t.Fatal(err)
		}
		var held []netip.Prefix
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				a.Release(held[i])
				held = append(held[:i], held[i+1:]...)
				continue
			}
			got, err := a.Allocate()
			if (err != nil) != (len(held) == 16) {
				t.Fatalf("%d held: %v", len(held), err)
			}
			if err != nil {
				continue
			}
			for _, h := range held {
				if h.Overlaps(got) {
					t.Fatalf("%s overlaps %s", got, h)
				}
			}
			held = append(held, got)
		}
	})
}
