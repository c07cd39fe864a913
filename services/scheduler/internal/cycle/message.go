package cycle

import (
	"fmt"
	"slices"
	"strings"

	"trireme.dev/services/scheduler/framework"
)

const messageNoNodes = "no nodes available to schedule pods"

// fitError is why a pod fits nowhere.
type fitError struct {
	pod       *framework.PodInfo
	nodes     int
	preFilter *framework.Status
	// reasons counts nodes by reason; a node may give several.
	reasons    map[string]int
	rejections []Rejection
	plugins    map[string]struct{}
	pending    map[string]struct{}
	postFilter string
	nominated  string
	clear      bool
	victims    []framework.Member
}

// add notes the plugin that rejected.
func (f *fitError) add(st *framework.Status) {
	p := st.Plugin()
	if p == "" {
		return
	}
	if st.Code() == framework.Pending {
		if f.pending == nil {
			f.pending = make(map[string]struct{})
		}
		f.pending[p] = struct{}{}
		return
	}
	f.reject(p)
}

// reject notes a plugin that could think otherwise.
func (f *fitError) reject(plugin string) {
	if f.plugins == nil {
		f.plugins = make(map[string]struct{})
	}
	f.plugins[plugin] = struct{}{}
}

// count notes a rejection of so many nodes.
func (f *fitError) count(st *framework.Status, nodes int) {
	f.add(st)
	f.rejections = append(f.rejections, Rejection{st, nodes})
	if f.reasons == nil {
		f.reasons = make(map[string]int)
	}
	for _, r := range st.Reasons() {
		f.reasons[r] += nodes
	}
}

// message is Kubernetes' own: "0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu." It names forPod where the
// reader could not know which pod is meant.
func (f *fitError) message(forPod string) string {
	if f.nodes == 0 {
		return messageNoNodes
	}
	var b strings.Builder
	fmt.Fprintf(&b, "0/%d nodes are available", f.nodes)
	if forPod != "" {
		fmt.Fprintf(&b, " for pod %s", forPod)
	}
	b.WriteByte(':')
	if f.preFilter != nil {
		fmt.Fprintf(&b, " %s.", f.preFilter.Message())
	} else if len(f.reasons) > 0 {
		lines := make([]string, 0, len(f.reasons))
		for reason, n := range f.reasons {
			lines = append(lines, fmt.Sprintf("%d %s", n, reason))
		}
		slices.Sort(lines) // as strings, as Kubernetes does
		fmt.Fprintf(&b, " %s.", strings.Join(lines, ", "))
	}
	if f.postFilter != "" {
		b.WriteString(" " + f.postFilter)
	}
	return b.String()
}

func (f *fitError) failure(message string) Failure {
	return Failure{
		Pod: f.pod, Message: message, NominatedNode: f.nominated, Clear: f.clear, Victims: f.victims, Rejections: f.rejections,
	}
}

// groupMessage says what a group lacks, with the first of its pods that did not fit as the example.
func groupMessage(q *framework.Queued, fit int, failures []*fitError) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pod group %s needs %d pods placed together; ", q.GroupKey, q.MinCount())
	if q.Scheduled > 0 {
		fmt.Fprintf(&b, "%d scheduled, ", q.Scheduled)
	}
	fmt.Fprintf(&b, "%d fit", fit)
	if len(failures) > 0 {
		f := failures[0]
		b.WriteString(": " + f.message(f.pod.Pod.GetMetadata().GetName()))
	}
	return b.String()
}
