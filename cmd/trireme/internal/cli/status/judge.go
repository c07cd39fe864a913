package status

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trireme.dev/cmd/trireme/internal/cli/table"
	"trireme.dev/kit/component"
)

const (
	// nodeSilent is after how long without a renewal a node counts as gone: four of them, as in Kubernetes.
	nodeSilent = 40 * time.Second
	// slowWatch is the lag from which the way through gateway and store is worth a look.
	slowWatch = 5 * time.Second
	// nearlyFull is the part of the quota from which on people should act.
	nearlyFull = 0.9
)

// Judge fills in Problems and Healthy. logs is the folder with a log for each service where the cluster is one of
// `trireme up` on this machine; empty elsewhere.
func (r *Report) Judge(logs string) {
	r.Problems = slices.Concat(r.storeProblems(), r.leaderProblems(logs), r.componentProblems(logs), r.nodeProblems(logs))
	r.Healthy = len(r.Problems) == 0
}

// look says where a service tells more.
func look(logs, service, host string) string {
	switch {
	case logs != "":
		return "see " + filepath.Join(logs, service+".log")
	case host != "":
		return fmt.Sprintf("see its log on %s", host)
	}
	return "see its log"
}

func (r *Report) storeProblems() []string {
	var out []string
	if r.Store.Error != "" {
		return []string{"the store cannot be asked: " + r.Store.Error}
	}
	leader, reached := false, false
	for _, m := range r.Store.Members {
		name := "etcd " + m.Name
		if m.Error != "" {
			out = append(out, fmt.Sprintf("%s at %s does not answer: %s", name, m.Endpoint, m.Error))
			continue
		}
		reached = true
		leader = leader || m.Leader
		for _, a := range m.Alarms {
			text := fmt.Sprintf("%s raises the alarm %s", name, a)
			if a == "NOSPACE" {
				text += fmt.Sprintf(": its database has reached the quota of %s, writes are refused; `trireme defragment` makes room", bytes(r.Store.QuotaBytes))
			}
			out = append(out, text)
		}
		if q := r.Store.QuotaBytes; q > 0 && float64(m.InUseBytes) > nearlyFull*float64(q) && len(m.Alarms) == 0 {
			out = append(out, fmt.Sprintf("%s uses %s of its quota of %s: raise it, or delete objects", name, bytes(m.InUseBytes), bytes(q)))
		}
	}
	if reached && !leader {
		out = append(out, "etcd has no leader: a majority of its members must run and reach one another")
	}
	return out
}

func (r *Report) leaderProblems(logs string) []string {
	var out []string
	for _, l := range r.Leaders {
		switch {
		case l.Holder == "":
			out = append(out, fmt.Sprintf("no %s leads: does one run? %s", l.Service, look(logs, l.Service, "")))
		case r.At.After(l.ExpiresAt):
			out = append(out, fmt.Sprintf("no %s leads: the lease of %s ran out %s ago and nobody took it over; %s",
				l.Service, l.Holder, table.Age(r.At.Sub(l.ExpiresAt)), look(logs, l.Service, "")))
		}
	}
	return out
}

func (r *Report) componentProblems(logs string) []string {
	var out []string
	gateways := 0
	for _, c := range r.Components {
		if c.Component == "apiserver" {
			gateways++
		}
		if silent := r.At.Sub(c.HeartbeatAt); silent >= component.Silent {
			out = append(out, fmt.Sprintf("%s %s has been silent for %s; %s", c.Component, c.Name, table.Age(silent), look(logs, c.Component, c.Host)))
			continue
		}
		if lag, err := time.ParseDuration(c.Lag); err == nil && lag >= slowWatch {
			out = append(out, fmt.Sprintf("%s %s sees its own writes %s late: gateway or store are slow", c.Component, c.Name, lag))
		}
	}
	if gateways == 0 {
		out = append(out, "no gateway tells of itself: the one that answers is older than its clients, or cannot write")
	}
	return out
}

func (r *Report) nodeProblems(logs string) []string {
	var out []string
	for _, n := range r.Nodes {
		if problem := n.problem(r.At); problem != "" {
			out = append(out, fmt.Sprintf("node %s %s; %s", n.Name, problem, look(logs, "nodeagent", n.Name)))
		}
		for _, p := range n.Plugins {
			if !p.Registered {
				out = append(out, fmt.Sprintf("device plugin of %s on node %s is gone; %s", p.Resource, n.Name, look(logs, "deviced", n.Name)))
			}
		}
	}
	if len(r.Nodes) == 0 {
		out = append(out, "there are no nodes: nothing can run")
	}
	return out
}

// problem of a node, of which there may be several, the one that explains the others.
func (n *Node) problem(now time.Time) string {
	switch {
	case n.RenewedAt.IsZero():
		return "has never renewed its lease"
	case now.Sub(n.RenewedAt) >= nodeSilent:
		return fmt.Sprintf("has been silent for %s", table.Age(now.Sub(n.RenewedAt)))
	case n.Error != "":
		return "cannot be asked: " + n.Error
	case !n.Ready:
		return "is not ready: " + strings.TrimSpace(n.Reason)
	}
	return ""
}
