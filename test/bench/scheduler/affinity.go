package main

import (
	"context"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/inmemory"
)

const (
	zone = "topology.kubernetes.io/zone"
	host = "kubernetes.io/hostname"
)

// topology runs pods of one shape among existing ones of the same, on 5,000 nodes.
func topology(name string, existing, measured int, target float64, change func(i int, p *corev1.Pod)) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		ns := nodes(5000, nil)
		return b.workload(ctx, name, target, inmemory.Config{}, ns, pods("existing", existing, change), pods(name, measured/b.scale, change))
	}
}

// colour gives a pod the label by which the terms here select.
func colour(p *corev1.Pod, value string) *metav1.LabelSelector {
	p.Metadata.Labels["colour"] = value
	return &metav1.LabelSelector{MatchLabels: map[string]string{"colour": value}}
}

func zoneSpread(_ int, p *corev1.Pod) {
	p.Spec.TopologySpreadConstraints = []*corev1.TopologySpreadConstraint{{
		MaxSkew: 5, TopologyKey: zone, WhenUnsatisfiable: "DoNotSchedule", LabelSelector: colour(p, "blue"),
	}}
}

// hostAntiAffinity keeps pods of two namespaces on hosts of their own.
func hostAntiAffinity(i int, p *corev1.Pod) {
	namespaces := []string{"sched-0", "sched-1"}
	p.Metadata.Namespace = namespaces[i%2]
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{
			TopologyKey: host, LabelSelector: colour(p, "green"), Namespaces: namespaces,
		}},
	}}
}

func zoneAffinity(_ int, p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{TopologyKey: zone, LabelSelector: colour(p, "blue")}},
	}}
}

func hostPreference(_ int, p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.WeightedPodAffinityTerm{{
			Weight: 1, PodAffinityTerm: &corev1.PodAffinityTerm{TopologyKey: host, LabelSelector: colour(p, "red")},
		}},
	}}
}
