//go:build linux

package network

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestIntervals(t *testing.T) {
	for _, tt := range []struct{ ranges, want string }{
		{"", ""},
		{"10.64.1.0/24", "10.64.1.0 end 10.64.2.0"},
		{"10.64.1.0/24 10.64.2.0/24 10.64.3.0/25", "10.64.1.0 end 10.64.3.128"}, // no address is both an end and a beginning
		{"10.64.1.0/24 10.64.3.0/24", "10.64.1.0 end 10.64.2.0 10.64.3.0 end 10.64.4.0"},
		{"255.255.255.0/24", "255.255.255.0"},
		{"0.0.0.0/1", "0.0.0.0 end 128.0.0.0"},
	} {
		var ranges []netip.Prefix
		for _, r := range strings.Fields(tt.ranges) {
			ranges = append(ranges, netip.MustParsePrefix(r))
		}
		var got []string
		for _, e := range intervals(ranges) {
			text := net.IP(e.Key).String()
			if e.IntervalEnd {
				text = "end " + text
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s, want %s", tt.ranges, strings.Join(got, " "), tt.want)
		}
	}
}

func TestSetPeersRefusesWhatMakesNoSense(t *testing.T) {
	b, err := New(Config{StateDir: t.TempDir()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, ranges := range [][]string{{"fd00::/64"}, {"10.64.1.0/24", "10.64.0.0/16"}, {"10.64.1.0/24", "10.64.1.0/24"}} {
		var prefixes []netip.Prefix
		for _, r := range ranges {
			prefixes = append(prefixes, netip.MustParsePrefix(r))
		}
		if err := b.SetPeers(t.Context(), prefixes); err == nil {
			t.Errorf("%v accepted", ranges)
		}
	}
	if err := b.SetPeers(t.Context(), []netip.Prefix{netip.MustParsePrefix("10.64.2.0/24"), netip.MustParsePrefix("10.64.1.0/24")}); err != nil {
		t.Error(err)
	}
}
