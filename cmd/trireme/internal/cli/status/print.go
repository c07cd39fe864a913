package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"trireme.dev/cmd/trireme/internal/cli/table"
)

// fewNodes are listed one by one; of more, those with a problem are.
const fewNodes = 50

// Tables are the verdict and the tables as people read them, each a list of lines of cells. all lists every node.
func (r *Report) Tables(all bool) (verdict []string, tables [][][]string) {
	if r.Healthy {
		verdict = []string{"healthy"}
	} else {
		verdict = []string{"unhealthy: " + r.Problems[0]}
		for _, p := range r.Problems[1:] {
			verdict = append(verdict, "           "+p)
		}
	}
	return verdict, [][][]string{r.components(), r.members(), r.nodes(all)}
}

func (r *Report) components() [][]string {
	lines := [][]string{{"COMPONENT", "NAME", "VERSION", "LEADER", "LAG", "HEARTBEAT", "UP", "SPANS-LOST", "LAST-ERROR"}}
	for _, c := range r.Components {
		leader := "-"
		if c.Leader != nil {
			leader = map[bool]string{true: "yes", false: "standby"}[*c.Leader]
		}
		lines = append(lines, []string{
			c.Component, c.Name, c.Version, leader, cmp.Or(c.Lag, "-"), r.age(c.HeartbeatAt), r.age(c.StartedAt),
			fmt.Sprint(c.SpansDropped), r.lastError(c.LastError),
		})
	}
	return lines
}

func (r *Report) members() [][]string {
	lines := [][]string{{"STORE", "ENDPOINT", "VERSION", "LEADER", "SIZE", "IN-USE", "QUOTA", "REVISION", "ALARMS"}}
	for _, m := range r.Store.Members {
		if m.Error != "" {
			lines = append(lines, []string{"etcd " + m.Name, m.Endpoint, "-", "-", "-", "-", "-", "-", m.Error})
			continue
		}
		leader := "no"
		if m.Leader {
			leader = "yes"
		} else if m.Learner {
			leader = "learner"
		}
		lines = append(lines, []string{
			"etcd " + m.Name, cmp.Or(m.Endpoint, "in the gateway"), m.Version, leader, bytes(m.SizeBytes), bytes(m.InUseBytes),
			bytes(r.Store.QuotaBytes), fmt.Sprint(m.Revision), cmp.Or(strings.Join(m.Alarms, ","), "-"),
		})
	}
	if len(r.Store.Members) == 0 {
		lines = append(lines, []string{r.Store.Kind, "-", "-", "-", "-", "-", "-", "-", cmp.Or(r.Store.Error, "-")})
	}
	return lines
}

func (r *Report) nodes(all bool) [][]string {
	lines := [][]string{{"NODE", "READY", "AGENT", "LEASE", "RUNTIME", "DEVICES", "PLUGINS", "LAST-ERROR"}}
	left := 0
	for _, n := range r.Nodes {
		if !all && len(r.Nodes) > fewNodes && n.problem(r.At) == "" {
			left++
			continue
		}
		ready := map[bool]string{true: "yes", false: "no"}[n.Ready]
		if n.Cordoned {
			ready += ",cordoned"
		}
		var devices, plugins []string
		for _, p := range n.Plugins {
			devices = append(devices, fmt.Sprintf("%s %d/%d", p.Resource, p.Healthy, p.Devices))
			plugin := cmp.Or(p.Version, "foreign")
			if !p.Registered {
				plugin = "gone"
			}
			plugins = append(plugins, plugin)
		}
		last := r.lastError(n.LastError)
		if n.Error != "" {
			last = n.Error
		}
		lines = append(lines, []string{
			n.Name, ready, cmp.Or(n.Version, "-"), r.age(n.RenewedAt), cmp.Or(n.Runtime, "-"),
			cmp.Or(strings.Join(devices, ","), "-"), cmp.Or(strings.Join(plugins, ","), "-"), last,
		})
	}
	if left > 0 {
		lines = append(lines, []string{fmt.Sprintf("and %d nodes without a problem (--all lists them)", left)})
	}
	return lines
}

func (r *Report) age(t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return "-"
	}
	return table.Age(max(r.At.Sub(t), 0))
}

func (r *Report) lastError(e *LastError) string {
	if e == nil {
		return "-"
	}
	return fmt.Sprintf("%s ago: %s", r.age(e.At), e.Message)
}

// bytes in the unit that fits.
func bytes(n int64) string {
	switch f := float64(n); {
	case n >= 1<<30:
		return fmt.Sprintf("%.1fGi", f/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1fMi", f/(1<<20))
	}
	return fmt.Sprintf("%.1fKi", float64(n)/(1<<10))
}
