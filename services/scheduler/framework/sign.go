package framework

import (
	"encoding/binary"
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// SignPlugin says what of a pod a plugin's answers at PreFilter, Filter, PreScore and Score depend on. Pods whose
// signatures are equal get equal answers from all plugins on a node that has not changed, and so the scheduler asks but
// once. A profile in which a plugin at one of these points does not implement it signs no pod.
type SignPlugin interface {
	Plugin
	// Sign writes what the answers depend on, and returns false where they depend on more than the pod, the node and
	// what SignEpoch tells of: where the node of one pod changes the score of others, for example. It is called once per
	// pod.
	Sign(pod *PodInfo, signature *Signature) bool
}

// SignEpochPlugin is a SignPlugin whose answers depend on things that belong to no node, such as on how many nodes an
// image is.
type SignEpochPlugin interface {
	SignPlugin
	// SignEpoch returns a number that changes with each change of what the answers for pod depend on besides pod and
	// node. It is called in each cycle and must be quick.
	SignEpoch(pod *PodInfo, nodes *Snapshot) uint64
}

// Signature is made of fields. Two plugins that depend on the same thing write the same field, which then counts once.
type Signature struct {
	fields []string
	text   []byte
}

// Reset empties the signature and keeps its memory.
func (s *Signature) Reset() { s.fields, s.text = s.fields[:0], s.text[:0] }

// Field begins a field, unless it is there already: then it returns false and nothing must be written. Name it by what it
// holds: "requests", "tolerations".
func (s *Signature) Field(name string) bool {
	if slices.Contains(s.fields, name) {
		return false
	}
	s.fields = append(s.fields, name)
	s.Text(name)
	return true
}

// Text adds a text to the field.
func (s *Signature) Text(text string) {
	s.Int(int64(len(text)))
	s.text = append(s.text, text...)
}

// Int adds a number to the field.
func (s *Signature) Int(n int64) {
	s.text = binary.AppendVarint(s.text, n)
}

// Map adds a map to the field.
func (s *Signature) Map(m map[string]string) {
	keys := make([]string, 0, 8)
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	s.Int(int64(len(keys)))
	for _, k := range keys {
		s.Text(k)
		s.Text(m[k])
	}
}

// Tolerations adds the field of a pod's tolerations.
func (s *Signature) Tolerations(tolerations []*corev1.Toleration) {
	if len(tolerations) == 0 || !s.Field("tolerations") {
		return
	}
	for _, t := range tolerations {
		s.Text(t.GetKey())
		s.Text(t.GetOperator())
		s.Text(t.GetValue())
		s.Text(t.GetEffect())
	}
}

// Bytes of the signature: valid until Reset.
func (s *Signature) Bytes() []byte { return s.text }
