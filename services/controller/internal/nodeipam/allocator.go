package nodeipam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Allocator divides a range of IPv4 addresses into blocks of one size and remembers which are taken. It is not safe for
// concurrent use.
type Allocator struct {
	cluster netip.Prefix
	bits    int
	taken   []bool
	next    int // where the search for a free block begins: blocks are reused as late as possible
}

// NewAllocator divides cluster into blocks with masks of bits bits.
func NewAllocator(cluster netip.Prefix, bits int) (*Allocator, error) {
	if !cluster.IsValid() || !cluster.Addr().Is4() || cluster != cluster.Masked() {
		return nil, fmt.Errorf("cluster CIDR %s: want an IPv4 range whose address has no bits below its mask", cluster)
	}
	if bits < cluster.Bits() || bits > 30 || bits-cluster.Bits() > 16 {
		return nil, fmt.Errorf("node mask /%d: want /%d to /%d for cluster CIDR %s", bits, cluster.Bits(), min(30, cluster.Bits()+16), cluster)
	}
	return &Allocator{cluster: cluster, bits: bits, taken: make([]bool, 1<<(bits-cluster.Bits()))}, nil
}

// Allocate takes a free block.
func (a *Allocator) Allocate() (netip.Prefix, error) {
	for i := range a.taken {
		n := (a.next + i) % len(a.taken)
		if !a.taken[n] {
			a.taken[n] = true
			a.next = n + 1
			return a.block(n), nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("all %d blocks of %s are taken", len(a.taken), a.cluster)
}

// Occupy takes the given block. One that is taken already or is none of ours is an error.
func (a *Allocator) Occupy(block netip.Prefix) error {
	n, err := a.index(block)
	if err != nil {
		return err
	}
	if a.taken[n] {
		return fmt.Errorf("block %s is taken already", block)
	}
	a.taken[n] = true
	return nil
}

// Release frees a block; one that is none of ours is ignored.
func (a *Allocator) Release(block netip.Prefix) {
	if n, err := a.index(block); err == nil {
		a.taken[n] = false
	}
}

func (a *Allocator) index(block netip.Prefix) (int, error) {
	if block.Bits() != a.bits || !a.cluster.Contains(block.Addr()) || block != block.Masked() {
		return 0, fmt.Errorf("block %s is not a /%d of %s", block, a.bits, a.cluster)
	}
	return int((number(block.Addr()) - number(a.cluster.Addr())) >> (32 - a.bits)), nil
}

func (a *Allocator) block(n int) netip.Prefix {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], number(a.cluster.Addr())+uint32(n)<<(32-a.bits))
	return netip.PrefixFrom(netip.AddrFrom4(raw), a.bits)
}

func number(addr netip.Addr) uint32 {
	raw := addr.As4()
	return binary.BigEndian.Uint32(raw[:])
}
