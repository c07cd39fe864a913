package describe

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"google.golang.org/protobuf/types/known/structpb"

	"trireme.dev/cmd/trireme/internal/cli/table"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// Revision is the annotation in which the Deployment controller counts revisions.
const Revision = "deployment.kubernetes.io/revision"

func (p *page) deployment(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) {
	meta, spec, status := d.GetMetadata(), d.GetSpec(), d.GetStatus()
	p.head(meta)
	p.labels(meta)
	p.created(meta)
	p.line(0, "Selector:\t%s", table.Selector(spec.GetSelector()))
	p.line(0, "Replicas:\t%d desired | %d updated | %d total | %d available | %d unavailable",
		spec.GetReplicas(), status.GetUpdatedReplicas(), status.GetReplicas(), status.GetAvailableReplicas(), status.GetUnavailableReplicas())
	p.line(0, "StrategyType:\t%s", spec.GetStrategy().GetType())
	if spec.GetPaused() {
		p.line(0, "Paused:\ttrue")
	}
	p.line(0, "MinReadySeconds:\t%d", spec.GetMinReadySeconds())
	if r := spec.GetStrategy().GetRollingUpdate(); r != nil {
		p.line(0, "RollingUpdateStrategy:\t%s max unavailable, %s max surge", number(r.GetMaxUnavailable()), number(r.GetMaxSurge()))
	}
	p.template(spec.GetTemplate())
	conditions(p, status.GetConditions(), func(c *appsv1.DeploymentCondition) string {
		if c.GetLastTransitionTime() == nil {
			return "-"
		}
		return p.since(c.GetLastTransitionTime().AsTime())
	})
	p.sets(meta.GetAnnotations()[Revision], sets)
}

// number writes a count or a percentage.
func number(v *structpb.Value) string {
	switch k := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		return fmt.Sprintf("%d", int64(k.NumberValue))
	case *structpb.Value_StringValue:
		return k.StringValue
	}
	return "-"
}

// sets writes the ReplicaSets of a Deployment: the one of its revision, and those that still have pods.
func (p *page) sets(revision string, sets []*appsv1.ReplicaSet) {
	var current, old []string
	for _, rs := range sets {
		text := fmt.Sprintf("%s (%d/%d replicas ready)", rs.GetMetadata().GetName(), rs.GetStatus().GetReadyReplicas(), rs.GetSpec().GetReplicas())
		switch {
		case rs.GetMetadata().GetAnnotations()[Revision] == revision:
			current = append(current, text)
		case rs.GetSpec().GetReplicas() > 0 || rs.GetStatus().GetReplicas() > 0:
			old = append(old, text)
		}
	}
	p.section(0, "")
	p.list("OldReplicaSets", old)
	p.list("NewReplicaSet", current)
}

func (p *page) list(title string, values []string) {
	if len(values) == 0 {
		p.line(0, "%s:\t<none>", title)
	}
	slices.Sort(values)
	for i, v := range values {
		p.line(0, "%s\t%s", lead(i, title+":"), v)
	}
}

func (p *page) replicaSet(rs *appsv1.ReplicaSet) {
	meta, spec, status := rs.GetMetadata(), rs.GetSpec(), rs.GetStatus()
	p.head(meta)
	p.labels(meta)
	p.created(meta)
	p.line(0, "Selector:\t%s", table.Selector(spec.GetSelector()))
	p.line(0, "Replicas:\t%d current / %d desired, %d ready, %d available",
		status.GetReplicas(), spec.GetReplicas(), status.GetReadyReplicas(), status.GetAvailableReplicas())
	p.template(spec.GetTemplate())
	conditions(p, status.GetConditions(), func(c *appsv1.ReplicaSetCondition) string {
		if c.GetLastTransitionTime() == nil {
			return "-"
		}
		return p.since(c.GetLastTransitionTime().AsTime())
	})
}

// Template describes what pods are made from.
func Template(w io.Writer, t *corev1.PodTemplateSpec) error {
	p := &page{w: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	p.template(t)
	return p.w.Flush()
}

// template writes what pods are made from.
func (p *page) template(t *corev1.PodTemplateSpec) {
	p.section(0, "Pod Template:")
	p.base = 1
	defer func() { p.base = 0 }()
	p.pairs(0, "Labels", t.GetMetadata().GetLabels())
	if a := t.GetMetadata().GetAnnotations(); len(a) > 0 {
		p.pairs(0, "Annotations", a)
	}
	p.containers("Init Containers", t.GetSpec().GetInitContainers(), nil)
	p.containers("Containers", t.GetSpec().GetContainers(), nil)
	p.volumes(t.GetSpec().GetVolumes())
}
