// Package network is the node's built-in pod network: a bridge, a veth pair per pod, addresses from the node's pod
// CIDR, masquerading and host ports.
//
// It owns the bridge, the pods' interfaces, one nftables table and the record of addresses, and changes nothing else
// of the node's network but the sysctls that forwarding needs. It uses netlink directly: no ip, nft, iptables or CNI
// program is run. The runtime calls it while it makes and removes sandboxes; it knows pods by their UID only.
package network

import "net/netip"

// NextAddress picks the free address of a pod range that follows after, going around at its end. An invalid after
// starts at the beginning. The range's network address, its gateway (the first host address) and, for IPv4, its
// broadcast address are never picked. ok is false when no address is free.
func NextAddress(cidr netip.Prefix, after netip.Addr, used func(netip.Addr) bool) (addr netip.Addr, ok bool) {
	cidr = cidr.Masked()
	first := Gateway(cidr).Next()
	if !cidr.Contains(first) {
		return netip.Addr{}, false
	}
	start := after
	if !cidr.Contains(start) || start.Less(first) {
		start = Gateway(cidr)
	}
	for addr = start.Next(); ; addr = addr.Next() {
		if !cidr.Contains(addr) || isBroadcast(cidr, addr) {
			addr = first
			if isBroadcast(cidr, addr) {
				return netip.Addr{}, false
			}
		}
		if !used(addr) {
			return addr, true
		}
		if addr == start || (start == Gateway(cidr) && !hasNext(cidr, addr)) {
			return netip.Addr{}, false
		}
	}
}

// Gateway is the node's own address in its pod range: the first host address.
func Gateway(cidr netip.Prefix) netip.Addr { return cidr.Masked().Addr().Next() }

func hasNext(cidr netip.Prefix, addr netip.Addr) bool {
	next := addr.Next()
	return cidr.Contains(next) && !isBroadcast(cidr, next)
}

func isBroadcast(cidr netip.Prefix, addr netip.Addr) bool {
	return addr.Is4() && !cidr.Contains(addr.Next())
}
