// Package status owns the picture of a whole cluster that `trireme status` shows: every process of the control plane,
// the store, every node with its agent and device plugins, and what is wrong among them. It gathers through one gateway
// (Collect), judges without asking anybody (Report.Judge) and prints (Report.Print).
package status

import "time"

// Report is the state of a cluster at one moment.
type Report struct {
	// Healthy is true where Problems is empty.
	Healthy bool `json:"healthy"`
	// Problems in one line each, the worst first.
	Problems []string `json:"problems"`
	// At is when it was gathered.
	At time.Time `json:"at"`
	// Components are the processes of the control plane.
	Components []Component `json:"components"`
	// Leaders by service, as their leases say.
	Leaders []Leader `json:"leaders"`
	// Store behind the gateways.
	Store Store `json:"store"`
	// Nodes with what runs on them.
	Nodes []Node `json:"nodes"`
}

// Component is a gateway, scheduler or controller.
type Component struct {
	Component    string     `json:"component"`
	Name         string     `json:"name"`
	Version      string     `json:"version"`
	Host         string     `json:"host"`
	PID          int64      `json:"pid"`
	Address      string     `json:"address,omitempty"`
	Leader       *bool      `json:"leader,omitempty"`
	Lag          string     `json:"lag,omitempty"`
	StartedAt    time.Time  `json:"startedAt"`
	HeartbeatAt  time.Time  `json:"heartbeatAt"`
	LastError    *LastError `json:"lastError,omitempty"`
	SpansDropped int64      `json:"spansDropped,omitempty"`
}

// LastError that a process logged.
type LastError struct {
	At      time.Time `json:"at"`
	Message string    `json:"message"`
}

// Leader is who holds the lease of a service.
type Leader struct {
	Service string `json:"service"`
	// Holder is empty where nobody does.
	Holder string `json:"holder,omitempty"`
	// ExpiresAt is when the lease runs out unless it is renewed.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// Store is what keeps the objects.
type Store struct {
	// Kind is etcd, embedded etcd or memory.
	Kind string `json:"kind"`
	// Error says why nothing is known of it.
	Error      string   `json:"error,omitempty"`
	QuotaBytes int64    `json:"quotaBytes,omitempty"`
	Members    []Member `json:"members,omitempty"`
}

// Member is one etcd.
type Member struct {
	Name       string   `json:"name"`
	Endpoint   string   `json:"endpoint,omitempty"`
	Error      string   `json:"error,omitempty"`
	Version    string   `json:"version,omitempty"`
	Leader     bool     `json:"leader"`
	Learner    bool     `json:"learner,omitempty"`
	SizeBytes  int64    `json:"sizeBytes"`
	InUseBytes int64    `json:"inUseBytes"`
	Revision   int64    `json:"revision"`
	Alarms     []string `json:"alarms,omitempty"`
}

// Node is a machine and what its agent says.
type Node struct {
	Name     string `json:"name"`
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason,omitempty"` // why it is not
	Cordoned bool   `json:"cordoned,omitempty"`
	// RenewedAt is when its agent last renewed its lease.
	RenewedAt time.Time `json:"renewedAt,omitzero"`
	// Error says why the agent could not be asked; the rest is then what the node's object says.
	Error     string     `json:"error,omitempty"`
	Version   string     `json:"version"`
	Runtime   string     `json:"runtime"`
	LastError *LastError `json:"lastError,omitempty"`
	Plugins   []Plugin   `json:"plugins,omitempty"`
}

// Plugin offers devices to a node.
type Plugin struct {
	Resource   string     `json:"resource"`
	Endpoint   string     `json:"endpoint,omitempty"`
	Registered bool       `json:"registered"`
	Devices    int32      `json:"devices"`
	Healthy    int32      `json:"healthy"`
	Version    string     `json:"version,omitempty"` // empty for a plugin of somebody else
	LastError  *LastError `json:"lastError,omitempty"`
}
