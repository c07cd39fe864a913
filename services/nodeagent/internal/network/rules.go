//go:build linux

package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// The table's chains:
//
//	prerouting, output ──(to a local address)──▶ hostports: one dnat rule per host port, marked with its pod
//	postrouting: masquerade what leaves the pod range for elsewhere than pods of other nodes (set peers), and what reached a
//	             pod through a host port from the node itself or from a pod
const (
	hostPortChain = "hostports"
	peerSet       = "peers"
)

func (b *Bridge) table() *nftables.Table {
	return &nftables.Table{Name: b.cfg.TableName, Family: nftables.TableFamilyIPv4}
}

// ensureRules makes the table anew, in one transaction: there is no moment without rules.
func (b *Bridge) ensureRules(cidr netip.Prefix) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(b.table())
	c.DelTable(table)
	table = c.AddTable(b.table())
	peers := b.peerSet(table)
	if err := c.AddSet(peers, intervals(b.peers)); err != nil {
		return fmt.Errorf("add set %s: %w", peerSet, err)
	}
	ports := c.AddChain(&nftables.Chain{Name: hostPortChain, Table: table})
	for name, hook := range map[string]*nftables.ChainHook{
		"prerouting": nftables.ChainHookPrerouting,
		"output":     nftables.ChainHookOutput,
	} {
		chain := c.AddChain(&nftables.Chain{
			Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest,
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
			&expr.Verdict{Kind: expr.VerdictJump, Chain: hostPortChain},
		}})
	}
	post := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, exprs := range [][]expr.Any{
		concat(source(cidr, expr.CmpOpEq), destination(cidr, expr.CmpOpNeq), notIn(peers), notMulticast()),
		concat(source(netip.MustParsePrefix("127.0.0.0/8"), expr.CmpOpEq), outInterface(b.cfg.BridgeName)),
		concat(source(cidr, expr.CmpOpEq), outInterface(b.cfg.BridgeName), translated()),
	} {
		c.AddRule(&nftables.Rule{Table: table, Chain: post, Exprs: append(exprs, &expr.Masq{})})
	}
	for uid, a := range b.pods {
		addPortRules(c, table, ports, uid, a)
	}
	return c.Flush()
}

// peerSet is the set of the ranges of other nodes' pods.
func (b *Bridge) peerSet(table *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: table, Name: peerSet, KeyType: nftables.TypeIPAddr, Interval: true}
}

// intervals gives sorted ranges as the kernel takes them: a first address, and as an end the first one behind. Ranges without a
// gap between them are one, since an address cannot be both. What reaches the last address of all has no end.
func intervals(ranges []netip.Prefix) []nftables.SetElement {
	var out []nftables.SetElement
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	const all = 1 << 32
	for i := 0; i < len(ranges); {
		first := ranges[i].Masked().Addr().As4()
		begin := uint64(binary.BigEndian.Uint32(first[:]))
		end := begin
		for ; i < len(ranges); i++ {
			next := ranges[i].Masked().Addr().As4()
			if uint64(binary.BigEndian.Uint32(next[:])) != end {
				break
			}
			end += 1 << (32 - ranges[i].Bits())
		}
		out = append(out, nftables.SetElement{Key: key(begin)})
		if end < all {
			out = append(out, nftables.SetElement{Key: key(end), IntervalEnd: true})
		}
	}
	return out
}

// replacePeers puts the set's content right, in one transaction.
func (b *Bridge) replacePeers() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	set := b.peerSet(b.table())
	c.FlushSet(set)
	if elements := intervals(b.peers); len(elements) > 0 {
		if err := c.SetAddElements(set, elements); err != nil {
			return err
		}
	}
	return c.Flush()
}

// notIn matches destinations outside of a set.
func notIn(set *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID, Invert: true},
	}
}

func (b *Bridge) removeTable() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	// Adding first makes removing a table that isn't there succeed.
	c.AddTable(b.table())
	c.DelTable(b.table())
	return c.Flush()
}

func (b *Bridge) addHostPorts(uid string, a attachment) error {
	if err := b.removeHostPorts(func(owner string) bool { return owner == uid }); err != nil {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := b.table()
	addPortRules(c, table, &nftables.Chain{Name: hostPortChain, Table: table}, uid, a)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("add host ports: %w", err)
	}
	return nil
}

// removeHostPorts removes the rules whose owner matches.
func (b *Bridge) removeHostPorts(match func(owner string) bool) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	for _, table := range tables {
		if table.Name != b.cfg.TableName {
			continue
		}
		rules, err := c.GetRules(table, &nftables.Chain{Name: hostPortChain, Table: table})
		if err != nil {
			return fmt.Errorf("list host ports: %w", err)
		}
		for _, rule := range rules {
			if match(string(rule.UserData)) {
				if err := c.DelRule(rule); err != nil {
					return fmt.Errorf("remove host port: %w", err)
				}
			}
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove host ports: %w", err)
	}
	return nil
}

func addPortRules(c *nftables.Conn, table *nftables.Table, chain *nftables.Chain, uid string, a attachment) {
	for _, p := range a.HostPorts {
		exprs := concat(protocol(p), hostIP(p), []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(p.HostPort))},
			&expr.Immediate{Register: 1, Data: a.Address.AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(uint16(p.ContainerPort))},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs, UserData: []byte(uid)})
	}
}

func protocol(p runtime.HostPort) []expr.Any {
	number := byte(unix.IPPROTO_TCP)
	switch strings.ToUpper(p.Protocol) {
	case "UDP":
		number = unix.IPPROTO_UDP
	case "SCTP":
		number = unix.IPPROTO_SCTP
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}},
	}
}

func hostIP(p runtime.HostPort) []expr.Any {
	ip, err := netip.ParseAddr(p.HostIP)
	if err != nil || !ip.Is4() || ip.IsUnspecified() {
		return nil
	}
	return destination(netip.PrefixFrom(ip, 32), expr.CmpOpEq)
}

// source and destination match the two addresses of the IPv4 header with a range.
func source(p netip.Prefix, op expr.CmpOp) []expr.Any      { return address(12, p, op) }
func destination(p netip.Prefix, op expr.CmpOp) []expr.Any { return address(16, p, op) }

func address(offset uint32, p netip.Prefix, op expr.CmpOp) []expr.Any {
	mask := make([]byte, 4)
	binary.BigEndian.PutUint32(mask, ^uint32(0)<<(32-p.Bits()))
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

func notMulticast() []expr.Any {
	return destination(netip.MustParsePrefix("224.0.0.0/4"), expr.CmpOpNeq)
}

func outInterface(name string) []expr.Any {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data},
	}
}

// translated matches connections whose destination was changed: those that came through a host port.
func translated() []expr.Any {
	const statusDstNAT = 1 << 5
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(statusDstNAT), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

func concat(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
