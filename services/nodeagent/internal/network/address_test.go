package network

import (
	"net/netip"
	"testing"
)

func TestNextAddress(t *testing.T) {
	tests := []struct {
		name, cidr, after string
		used              []string
		want              string
	}{
		{"first is after the gateway", "10.1.2.0/24", "", nil, "10.1.2.2"},
		{"goes on after the last", "10.1.2.0/24", "10.1.2.9", nil, "10.1.2.10"},
		{"skips used ones", "10.1.2.0/24", "10.1.2.9", []string{"10.1.2.10", "10.1.2.11"}, "10.1.2.12"},
		{"goes around before the broadcast address", "10.1.2.0/24", "10.1.2.254", nil, "10.1.2.2"},
		{"finds the one that was last when all others are used", "10.1.2.0/29", "10.1.2.4",
			[]string{"10.1.2.2", "10.1.2.3", "10.1.2.5", "10.1.2.6"}, "10.1.2.4"},
		{"full from the start", "10.1.2.0/29", "",
			[]string{"10.1.2.2", "10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6"}, ""},
		{"full from the middle", "10.1.2.0/29", "10.1.2.4",
			[]string{"10.1.2.2", "10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6"}, ""},
		{"an address outside counts as none", "10.1.2.0/24", "10.9.9.9", nil, "10.1.2.2"},
		{"too small", "10.1.2.0/31", "", nil, ""},
		{"IPv6", "fd00::/64", "fd00::5", nil, "fd00::6"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			used := map[netip.Addr]bool{}
			for _, a := range tt.used {
				used[netip.MustParseAddr(a)] = true
			}
			var after netip.Addr
			if tt.after != "" {
				after = netip.MustParseAddr(tt.after)
			}
			got, ok := NextAddress(netip.MustParsePrefix(tt.cidr), after, func(a netip.Addr) bool { return used[a] })
			switch {
			case tt.want == "" && ok:
				t.Errorf("got %s, want none", got)
			case tt.want != "" && (!ok || got.String() != tt.want):
				t.Errorf("got %s %v, want %s", got, ok, tt.want)
			}
		})
	}
}
