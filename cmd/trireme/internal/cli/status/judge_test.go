package status

import (
	"strings"
	"testing"
	"time"
)

// well is a cluster in which nothing is wrong.
func well(at time.Time) *Report {
	yes := true
	beat := func(component, name string, leader *bool) Component {
		return Component{Component: component, Name: name, Host: "h1", Lag: "3ms", Leader: leader, HeartbeatAt: at.Add(-12 * time.Second)}
	}
	return &Report{
		At: at,
		Components: []Component{
			beat("apiserver", "apiserver-h1", nil), beat("scheduler", "scheduler-h1", &yes), beat("controller", "controller-h1", &yes),
		},
		Leaders: []Leader{
			{Service: "scheduler", Holder: "h1_A", ExpiresAt: at.Add(10 * time.Second)},
			{Service: "controller", Holder: "h1_B", ExpiresAt: at.Add(10 * time.Second)},
		},
		Store: Store{Kind: "etcd", QuotaBytes: 1 << 30, Members: []Member{
			{Name: "e1", Leader: true, InUseBytes: 1 << 20}, {Name: "e2", InUseBytes: 1 << 20}, {Name: "e3", InUseBytes: 1 << 20},
		}},
		Nodes: []Node{{
			Name: "n1", Ready: true, RenewedAt: at.Add(-5 * time.Second),
			Plugins: []Plugin{{Resource: "nvidia.com/gpu", Registered: true, Devices: 8, Healthy: 8}},
		}},
	}
}

func TestJudge(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		change func(*Report)
		logs   string
		want   string // the only problem; empty for none
	}{
		{name: "well", change: func(*Report) {}},
		{name: "a store in memory", change: func(r *Report) { r.Store = Store{Kind: "memory"} }},
		{name: "a cordoned node", change: func(r *Report) { r.Nodes[0].Cordoned = true }},
		{
			name:   "no store",
			change: func(r *Report) { r.Store = Store{Kind: "etcd", Error: "no answer"} },
			want:   "the store cannot be asked: no answer",
		},
		{
			name: "a member that is down",
			change: func(r *Report) {
				r.Store.Members[1] = Member{Name: "e2", Endpoint: "http://e2:2379", Error: "no answer within 2s"}
			},
			want: "etcd e2 at http://e2:2379 does not answer: no answer within 2s",
		},
		{
			name:   "no leader",
			change: func(r *Report) { r.Store.Members[0].Leader = false },
			want:   "etcd has no leader: a majority of its members must run and reach one another",
		},
		{
			name:   "full",
			change: func(r *Report) { r.Store.Members[2].Alarms = []string{"NOSPACE"} },
			want: "etcd e3 raises the alarm NOSPACE: its database has reached the quota of 1.0Gi, writes are refused; " +
				"`trireme defragment` makes room",
		},
		{
			name:   "nearly full",
			change: func(r *Report) { r.Store.Members[0].InUseBytes = 1000 << 20 },
			want:   "etcd e1 uses 1000.0Mi of its quota of 1.0Gi: raise it, or delete objects",
		},
		{
			name:   "a lease that was never taken",
			change: func(r *Report) { r.Leaders[0] = Leader{Service: "scheduler"} },
			logs:   "/state/log",
			want:   "no scheduler leads: does one run? see /state/log/scheduler.log",
		},
		{
			name:   "a leader that died",
			change: func(r *Report) { r.Leaders[1].ExpiresAt = at.Add(-20 * time.Second) },
			want:   "no controller leads: the lease of h1_B ran out 20s ago and nobody took it over; see its log",
		},
		{
			name:   "a silent process",
			change: func(r *Report) { r.Components[1].HeartbeatAt = at.Add(-45 * time.Second) },
			want:   "scheduler scheduler-h1 has been silent for 45s; see its log on h1",
		},
		{
			name:   "a slow watch",
			change: func(r *Report) { r.Components[2].Lag = "7s" },
			want:   "controller controller-h1 sees its own writes 7s late: gateway or store are slow",
		},
		{
			name:   "no gateway tells",
			change: func(r *Report) { r.Components = r.Components[1:] },
			want:   "no gateway tells of itself: the one that answers is older than its clients, or cannot write",
		},
		{
			name: "a node whose agent is gone",
			change: func(r *Report) {
				r.Nodes[0].RenewedAt, r.Nodes[0].Error = at.Add(-time.Minute), "connection refused"
			},
			want: "node n1 has been silent for 60s; see its log on n1",
		},
		{
			name:   "a node that cannot be reached",
			change: func(r *Report) { r.Nodes[0].Error = "no answer within 3s" },
			logs:   "/state/log",
			want:   "node n1 cannot be asked: no answer within 3s; see /state/log/nodeagent.log",
		},
		{
			name:   "a node that is not ready",
			change: func(r *Report) { r.Nodes[0].Ready, r.Nodes[0].Reason = false, "containerd does not answer" },
			want:   "node n1 is not ready: containerd does not answer; see its log on n1",
		},
		{
			name:   "a device plugin that is gone",
			change: func(r *Report) { r.Nodes[0].Plugins[0].Registered = false },
			want:   "device plugin of nvidia.com/gpu on node n1 is gone; see its log on n1",
		},
		{name: "no nodes", change: func(r *Report) { r.Nodes = nil }, want: "there are no nodes: nothing can run"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := well(at)
			tt.change(r)
			r.Judge(tt.logs)
			if got := strings.Join(r.Problems, "\n"); got != tt.want || r.Healthy != (tt.want == "") {
				t.Errorf("problems\n%s\nwant\n%s", got, tt.want)
			}
			verdict, tables := r.Tables(false)
			if r.Healthy != (verdict[0] == "healthy") || len(tables) != 3 {
				t.Errorf("verdict %q over %d tables", verdict, len(tables))
			}
		})
	}
}

func TestALargeClusterListsNodesWithProblems(t *testing.T) {
	at := time.Now()
	r := well(at)
	for range 99 {
		r.Nodes = append(r.Nodes, r.Nodes[0])
	}
	r.Nodes[7].Error = "no answer"
	r.Judge("")
	_, tables := r.Tables(false)
	if nodes := tables[2]; len(nodes) != 3 || !strings.HasPrefix(nodes[2][0], "and 99 nodes without a problem") {
		t.Errorf("lines %v", nodes)
	}
	if _, tables = r.Tables(true); len(tables[2]) != 101 {
		t.Errorf("%d lines with all nodes", len(tables[2]))
	}
}
