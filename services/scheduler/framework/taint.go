package framework

import (
	"strconv"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// The effects of taints.
const (
	TaintNoSchedule       = "NoSchedule"
	TaintPreferNoSchedule = "PreferNoSchedule"
	TaintNoExecute        = "NoExecute"
)

// TaintUnschedulable is the taint that stands for spec.unschedulable.
const TaintUnschedulable = "node.kubernetes.io/unschedulable"

// Tolerates reports whether one of the tolerations bears the taint.
func Tolerates(tolerations []*corev1.Toleration, taint *corev1.Taint) bool {
	for _, t := range tolerations {
		if tolerates(t, taint) {
			return true
		}
	}
	return false
}

func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if e := t.GetEffect(); e != "" && e != taint.GetEffect() {
		return false
	}
	if k := t.GetKey(); k != "" && k != taint.GetKey() {
		return false
	}
	switch t.GetOperator() {
	case "Exists":
		return true
	case "", "Equal":
		// Without a key only Exists matches every taint.
		return t.GetKey() != "" && t.GetValue() == taint.GetValue()
	case "Lt", "Gt":
		have, err1 := strconv.ParseInt(taint.GetValue(), 10, 64)
		bound, err2 := strconv.ParseInt(t.GetValue(), 10, 64)
		if err1 != nil || err2 != nil || t.GetKey() == "" {
			return false
		}
		if t.GetOperator() == "Lt" {
			return have < bound
		}
		return have > bound
	}
	return false
}

// UntoleratedTaint returns the first taint that keeps new pods with these tolerations away, nil where none does.
func UntoleratedTaint(taints []*corev1.Taint, tolerations []*corev1.Toleration) *corev1.Taint {
	for _, taint := range taints {
		if e := taint.GetEffect(); e != TaintNoSchedule && e != TaintNoExecute {
			continue
		}
		if !Tolerates(tolerations, taint) {
			return taint
		}
	}
	return nil
}
