package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/apierr"
	"trireme.dev/client/tracing"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/observed"
)

const (
	// bindByList is the size of a group from which pods are read in one list instead of one by one.
	bindByList = 64
	bindTries  = 5
)

// bindFault is why a group was not bound.
type bindFault struct {
	reason  string
	message string
	index   int // -1 where no single binding is at fault
}

func (f *bindFault) Error() string { return f.message }

func fault(index int, reason, format string, args ...any) error {
	return &bindFault{reason: reason, message: fmt.Sprintf(format, args...), index: index}
}

func (r *Registry) bindGroup(ctx context.Context, bindings []*corev1.Binding, lease *coordinationv1.LeaseClaim) *corev1.BindGroupResult {
	if err := checkBindings(bindings); err != nil {
		return bindResult(0, err)
	}
	// What the cache has is nearly always what there is, and what is not makes the commit fail. Only a commit counts: all
	// other answers must not rest on an old state.
	if held, err := r.cachedTerm(lease); err == nil {
		revision, err := r.tryBind(ctx, bindings, r.cachedPods(bindings), held)
		if err == nil && revision > 0 || unanswered(err) {
			return bindResult(revision, err)
		}
	}
	for try := 1; ; try++ {
		held, err := r.term(ctx, lease)
		if err != nil {
			return bindResult(0, err)
		}
		entries, err := r.bindEntries(ctx, bindings)
		if err != nil {
			return bindResult(0, err)
		}
		revision, err := r.tryBind(ctx, bindings, entries, held)
		if errors.Is(err, errMoved) && try < bindTries {
			continue // some pod's status was written, or the lease renewed meanwhile; the next try says whether that matters
		}
		return bindResult(revision, err)
	}
}

func bindResult(revision int64, err error) *corev1.BindGroupResult {
	if err == nil {
		result := &corev1.BindGroupResult{}
		if revision > 0 {
			result.ResourceVersion = strconv.FormatInt(revision, 10)
		}
		return result
	}
	out := &corev1.BindError{Reason: "Unavailable", Message: err.Error()}
	var f *bindFault
	var typed *apierr.Error
	switch {
	case errors.As(err, &f):
		out.Reason = f.reason
		if f.index >= 0 {
			out.Index = proto.Int32(int32(f.index))
		}
	case errors.Is(err, errMoved):
		out.Reason = string(apierr.ReasonConflict)
	case errors.As(err, &typed):
		out.Reason = string(typed.Reason)
	}
	return &corev1.BindGroupResult{Error: out}
}

func checkBindings(bindings []*corev1.Binding) error {
	if len(bindings) == 0 {
		return fault(-1, "Invalid", "the group has no bindings")
	}
	seen := make(map[string]bool, len(bindings))
	for i, b := range bindings {
		key := b.GetNamespace() + "/" + b.GetPodName()
		switch {
		case b.GetNodeName() == "":
			return fault(i, "Invalid", "pod %s: nodeName: Required value", key)
		case b.GetPodName() == "" || b.GetNamespace() == "":
			return fault(i, "Invalid", "binding %d: namespace and podName: Required value", i)
		case seen[key]:
			return fault(i, "Invalid", "pod %s is in the group twice", key)
		}
		seen[key] = true
	}
	return nil
}

// tryBind changes and writes all pods of a group while held holds. The revision is 0 where nothing was left to do.
func (r *Registry) tryBind(ctx context.Context, bindings []*corev1.Binding, entries map[string]storage.Entry, held []storage.Condition) (int64, error) {
	w := bindWrite{now: time.Now()}
	if err := r.addBindings(&w, bindings, entries); err != nil || len(w.txn.Then) == 0 {
		return 0, err
	}
	w.txn.If = append(w.txn.If, held...)
	revision, err := r.commitBindings(ctx, &w)
	var conflict *storage.ConflictError
	switch {
	case errors.As(err, &conflict):
		return 0, errMoved
	case errors.Is(err, storage.ErrTooLarge):
		return 0, fault(-1, "TooLarge", "group of %d pods: %v", len(bindings), err)
	case err != nil:
		return 0, r.Of("Pod").storeError(err, "", "")
	}
	return revision, nil
}

// bindWrite is a transaction that puts pods on nodes.
type bindWrite struct {
	now    time.Time
	txn    storage.Txn
	traced []*metav1.ObjectMeta
}

// addBindings adds what a group's pods become to the transaction.
func (r *Registry) addBindings(w *bindWrite, bindings []*corev1.Binding, entries map[string]storage.Entry) error {
	pods := r.Of("Pod")
	for i, b := range bindings {
		name := b.GetNamespace() + "/" + b.GetPodName()
		entry, ok := entries[pods.prefix+name]
		if !ok {
			return fault(i, "NotFound", "pod %s not found", name)
		}
		pod := &corev1.Pod{}
		if err := envelope.Decode(entry.Value, entry.Revision, pod); err != nil {
			return pods.corrupt(entry.Key, err)
		}
		done, err := bindPod(pod, b, i, w.now)
		if err != nil {
			return err
		}
		// A pod that is bound already must stay so until the others are: it is a condition too.
		w.txn.If = append(w.txn.If, storage.Condition{Key: entry.Key, Revision: entry.Revision})
		if done {
			continue
		}
		if meta := pod.GetMetadata(); tracing.Sampled(meta) {
			// The node's agent is the next reader.
			meta.TraceTime = timestamppb.New(w.now)
			w.traced = append(w.traced, meta)
		}
		stored, err := pods.encode(pod)
		if err != nil {
			return fault(i, "Invalid", "pod %s: %v", name, err)
		}
		w.txn.Then = append(w.txn.Then, storage.Op{Key: entry.Key, Value: stored})
	}
	return nil
}

// commitBindings commits the transaction; errors are the store's.
func (r *Registry) commitBindings(ctx context.Context, w *bindWrite) (int64, error) {
	revision, err := r.store.Commit(ctx, w.txn)
	if err == nil {
		bound(ctx, w.traced, w.now, observed.TxnSpan, revision)
	}
	return revision, err
}

// cachedPods are the pods of a group as the watch cache has them; those that it does not know are absent.
func (r *Registry) cachedPods(bindings []*corev1.Binding) map[string]storage.Entry {
	pods := r.Of("Pod")
	entries := make(map[string]storage.Entry, len(bindings))
	for _, b := range bindings {
		if key, ok := pods.key(b.GetNamespace(), b.GetPodName()); ok {
			if entry, ok := pods.cached(key); ok {
				entries[key] = entry
			}
		}
	}
	return entries
}

// bindEntries reads the pods of a group from the store; those that do not exist are absent.
func (r *Registry) bindEntries(ctx context.Context, bindings []*corev1.Binding) (map[string]storage.Entry, error) {
	pods := r.Of("Pod")
	count := map[string]int{}
	for _, b := range bindings {
		count[b.GetNamespace()]++
	}
	entries := make(map[string]storage.Entry, len(bindings))
	for namespace, n := range count {
		if n < bindByList {
			continue
		}
		page, err := r.store.List(ctx, pods.scope(namespace), storage.ListOptions{})
		if err != nil {
			return nil, pods.storeError(err, "", "")
		}
		for _, entry := range page.Entries {
			entries[entry.Key] = entry
		}
	}
	for _, b := range bindings {
		if count[b.GetNamespace()] >= bindByList {
			continue
		}
		key, ok := pods.key(b.GetNamespace(), b.GetPodName())
		if !ok {
			continue
		}
		entry, found, _, err := r.store.Get(ctx, key)
		if err != nil {
			return nil, pods.storeError(err, b.GetNamespace(), b.GetPodName())
		}
		if found {
			entries[key] = entry
		}
	}
	return entries, nil
}

// bindPod puts a decoded pod on its node. Done is true where it is there already.
func bindPod(pod *corev1.Pod, b *corev1.Binding, index int, now time.Time) (done bool, err error) {
	meta := pod.GetMetadata()
	name := b.GetNamespace() + "/" + b.GetPodName()
	switch {
	case b.GetPodUid() != "" && b.GetPodUid() != meta.GetUid():
		return false, fault(index, "Conflict", "pod %s has uid %s, the binding is for uid %s", name, meta.GetUid(), b.GetPodUid())
	case pod.GetSpec().GetNodeName() == b.GetNodeName():
		return true, nil // whatever has become of it since
	case meta.GetDeletionTimestamp() != nil:
		return false, fault(index, "Conflict", "pod %s is being deleted, cannot be assigned to a host", name)
	case pod.GetSpec().GetNodeName() != "":
		return false, fault(index, "Conflict", "pod %s is already assigned to node %q", name, pod.GetSpec().GetNodeName())
	case len(pod.GetSpec().GetSchedulingGates()) > 0:
		return false, fault(index, "Invalid", "pod %s has non-empty .spec.schedulingGates", name)
	case pod.GetStatus().GetPhase() == "Succeeded" || pod.GetStatus().GetPhase() == "Failed":
		return false, fault(index, "Conflict", "pod %s has ended (%s)", name, pod.GetStatus().GetPhase())
	}
	if pod.Spec == nil {
		pod.Spec = &corev1.PodSpec{}
	}
	pod.Spec.NodeName = proto.String(b.GetNodeName())
	for k, v := range b.GetAnnotations() {
		if meta.Annotations == nil {
			meta.Annotations = map[string]string{}
		}
		meta.Annotations[k] = v
	}
	if pod.Status == nil {
		pod.Status = &corev1.PodStatus{Phase: "Pending"}
	}
	pod.Status.NominatedNodeName = ""
	setScheduled(pod.Status, timestamppb.New(now.Truncate(time.Second)))
	return false, nil
}

func setScheduled(status *corev1.PodStatus, now *timestamppb.Timestamp) {
	scheduled := &corev1.PodCondition{Type: "PodScheduled", Status: "True", LastTransitionTime: now}
	for i, c := range status.GetConditions() {
		if c.GetType() == scheduled.GetType() {
			if c.GetStatus() == scheduled.GetStatus() {
				scheduled.LastTransitionTime = c.GetLastTransitionTime()
			}
			status.Conditions[i] = scheduled
			return
		}
	}
	status.Conditions = append(status.Conditions, scheduled)
}
