package join

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// ours begins the names of the pods' interfaces, whose addresses no other machine can reach.
const ours = "trireme"

// addresses at which other machines reach a listener, the likeliest first.
func addresses(listen net.Addr) []string {
	tcp, ok := listen.(*net.TCPAddr)
	if !ok {
		return nil
	}
	port := strconv.Itoa(tcp.Port)
	if !tcp.IP.IsUnspecified() {
		return []string{net.JoinHostPort(tcp.IP.String(), port)}
	}
	var ips []string
	add := func(ip net.IP) {
		if ip.IsGlobalUnicast() && !slices.Contains(ips, ip.String()) {
			ips = append(ips, ip.String())
		}
	}
	// The one by which the rest of the world is reached. Nothing is sent: UDP has no connections.
	if conn, err := net.Dial("udp", "192.0.2.1:9"); err == nil {
		if a, ok := conn.LocalAddr().(*net.UDPAddr); ok {
			add(a.IP)
		}
		_ = conn.Close()
	}
	links, err := net.Interfaces()
	if err != nil {
		links = nil
	}
	for _, four := range []bool{true, false} {
		for _, link := range links {
			if strings.HasPrefix(link.Name, ours) || link.Flags&net.FlagUp == 0 {
				continue
			}
			all, err := link.Addrs()
			if err != nil {
				continue // it has gone meanwhile
			}
			for _, a := range all {
				if n, ok := a.(*net.IPNet); ok && (n.IP.To4() != nil) == four {
					add(n.IP)
				}
			}
		}
	}
	if len(ips) == 0 {
		ips = []string{"127.0.0.1"}
	}
	for i, ip := range ips {
		ips[i] = net.JoinHostPort(ip, port)
	}
	return ips
}
