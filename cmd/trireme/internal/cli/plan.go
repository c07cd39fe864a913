package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	"trireme.dev/kit/daemon"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

const labelHostname = "kubernetes.io/hostname"

type planFlags struct {
	files     []string
	recursive bool
	waiting   bool
	addNodes  int
	like      string
	drain     []string
	output    string
}

func (c *cli) planCommand() *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use:   "plan [-f FILE...] [--waiting] [--add-nodes N --like NODE] [--drain NODE]",
		Short: "Say where pods would go, with other nodes too, without starting any",
		Long: `Say where the pods of manifests would go if they were created now: pods by themselves, those of Deployments, ReplicaSets,
StatefulSets and Jobs, and pod groups. The scheduler that leads works it out on a copy of the cluster; nothing is written.
The copy may have more nodes (--add-nodes 2 --like node-1) or fewer (--drain node-1: its pods are placed elsewhere first).

The exit code is 1 where a pod would have to wait.`,
		Example: `  trireme plan -f train.yaml
  trireme plan -f train.yaml --add-nodes 2 --like node-1
  trireme plan --drain node-1
  trireme plan --waiting --add-nodes 1 --like node-1   # would one more node do for what waits?`,
		Args: exactly(0, "manifests with -f"),
		RunE: c.online(func(ctx context.Context, _ []string) error { return c.plan(ctx, f) }),
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "`FILE`, folder or - with what would be created (repeatable)")
	flags.BoolVarP(&f.recursive, "recursive", "R", false, "read the folders inside folders too")
	flags.BoolVar(&f.waiting, "waiting", false, "place the pods that wait already, before those of the manifests")
	flags.IntVar(&f.addNodes, "add-nodes", 0, "`number` of nodes to have more, as --like says")
	flags.StringVar(&f.like, "like", "", "`node` that the new ones are like")
	flags.StringArrayVar(&f.drain, "drain", nil, "`node` to do without (repeatable)")
	flags.StringVarP(&f.output, "output", "o", "", "`format`: json, yaml")
	c.completeWords(cmd, "output", "json", "yaml")
	c.complete(cmd, "like", func(ctx context.Context) []string { return c.namesOf(ctx, "nodes") })
	c.complete(cmd, "drain", func(ctx context.Context) []string { return c.namesOf(ctx, "nodes") })
	return cmd
}

func (f *planFlags) check() error {
	switch {
	case len(f.files) == 0 && !f.waiting && len(f.drain) == 0:
		return usage("say what to place: manifests with -f, --waiting, or --drain NODE")
	case f.addNodes < 0:
		return usage("--add-nodes %d: want 1 or more", f.addNodes)
	case (f.addNodes > 0) != (f.like != ""):
		return usage("--add-nodes and --like go together: --add-nodes 2 --like node-1")
	case f.output != "" && f.output != "json" && f.output != "yaml":
		return usage("-o %s: want json or yaml", f.output)
	}
	return nil
}

func (c *cli) plan(ctx context.Context, f *planFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	req := &schedulingv1.PlanRequest{Waiting: f.waiting, DrainNodes: f.drain}
	if len(f.files) > 0 {
		docs, err := c.documents(f.files, f.recursive)
		if err != nil {
			return err
		}
		if err := c.addDocuments(ctx, req, docs); err != nil {
			return err
		}
		if len(req.Pods) == 0 && !f.waiting && len(f.drain) == 0 {
			return fmt.Errorf("no pods in %s", strings.Join(f.files, ", "))
		}
	}
	if f.addNodes > 0 {
		like, err := client.For[*corev1.Node](c.conn).Get(ctx, "", f.like)
		if err != nil {
			return err
		}
		for i := range f.addNodes {
			req.AddNodes = append(req.AddNodes, nodeLike(like, i+1))
		}
	}
	out, err := schedulingv1.NewSchedulerServiceClient(c.conn).Plan(ctx, req)
	if err != nil {
		return apierr.FromStatus(err)
	}
	if f.output != "" {
		err = c.printMessage(f.output, out)
	} else {
		err = c.printPlan(out, len(f.drain) > 0)
	}
	if err == nil && out.GetUnplaced() > 0 {
		return &daemon.ExitError{Code: 1} // which ones has been printed
	}
	return err
}

// addDocuments adds the pods and groups of documents to a request, as the gateway would store them.
func (c *cli) addDocuments(ctx context.Context, req *schedulingv1.PlanRequest, docs []manifest.Document) error {
	var errs []error
	for _, d := range docs {
		if group, ok := d.Object.(*schedulingv1.PodGroup); ok {
			created, err := client.For[*schedulingv1.PodGroup](c.conn).With(&metav1.WriteOptions{DryRun: true}).Create(ctx, group)
			switch {
			case apierr.IsAlreadyExists(err):
				created = group
			case err != nil:
				errs = append(errs, at(d.Source, c.readable(err)))
				continue
			}
			req.PodGroups = append(req.PodGroups, created)
			continue
		}
		pod, count := podsOf(d)
		if pod == nil {
			continue
		}
		stored, err := c.asStored(ctx, pod)
		if err != nil {
			errs = append(errs, at(d.Source, c.readable(err)))
			continue
		}
		name := pod.GetMetadata().GetName()
		for i := range count {
			p := stored
			if _, alone := d.Object.(*corev1.Pod); !alone {
				p = proto.CloneOf(stored)
				p.Metadata.Name = fmt.Sprintf("%s-%d", name, i)
			}
			req.Pods = append(req.Pods, p)
		}
	}
	return c.failures(errs)
}

// podsOf is the pod of a document and how many there would be of it; nil where it has none, or one per node.
func podsOf(d manifest.Document) (*corev1.Pod, int) {
	meta := d.Object.GetMetadata()
	if p, ok := d.Object.(*corev1.Pod); ok {
		pod := proto.CloneOf(p)
		if meta.GetName() == "" {
			pod.Metadata.Name = strings.TrimSuffix(meta.GetGenerateName(), "-")
		}
		return pod, 1
	}
	m := d.Object.ProtoReflect()
	spec := m.Descriptor().Fields().ByName("spec")
	if d.Kind.Name == "DaemonSet" || spec == nil || spec.Message() == nil {
		return nil, 0
	}
	fields, s := spec.Message().Fields(), m.Get(spec).Message()
	field := fields.ByName("template")
	if field == nil || field.Message() == nil || field.Message().FullName() != "trireme.core.v1.PodTemplateSpec" {
		return nil, 0
	}
	template, _ := s.Get(field).Message().Interface().(*corev1.PodTemplateSpec)
	count := 1
	for _, name := range []string{"replicas", "parallelism"} {
		for i := range fields.Len() {
			if f := fields.Get(i); string(f.Name()) == name && s.Has(f) {
				count = int(s.Get(f).Int())
			}
		}
	}
	pod := &corev1.Pod{Metadata: &metav1.ObjectMeta{}, Spec: &corev1.PodSpec{}}
	if template.GetMetadata() != nil {
		pod.Metadata = proto.CloneOf(template.GetMetadata())
	}
	if template.GetSpec() != nil {
		pod.Spec = proto.CloneOf(template.GetSpec())
	}
	pod.Metadata.Name, pod.Metadata.Namespace = meta.GetName(), meta.GetNamespace()
	return pod, count
}

// maxPrefix leaves room for what the gateway appends to a generated name.
const maxPrefix = 57

// asStored is a pod with the gateway's defaults. Its name does not matter, so one of the same name is not in the way.
func (c *cli) asStored(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	name := pod.GetMetadata().GetName()
	trial := proto.CloneOf(pod)
	trial.Metadata.Name, trial.Metadata.GenerateName = "", name[:min(len(name), maxPrefix)]+"-"
	stored, err := client.For[*corev1.Pod](c.conn).OnWarning(func(w string) { c.warn("", w) }).
		With(&metav1.WriteOptions{DryRun: true, FieldManager: c.manager()}).Create(ctx, trial)
	if err != nil {
		return nil, err
	}
	stored.Metadata.Name, stored.Metadata.GenerateName, stored.Metadata.ManagedFields = name, "", nil
	return stored, nil
}

// nodeLike is a node of the same make that has just come and is well.
func nodeLike(node *corev1.Node, n int) *corev1.Node {
	out := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: fmt.Sprintf("%s-new-%d", node.GetMetadata().GetName(), n), Labels: map[string]string{}},
		Spec:     &corev1.NodeSpec{},
		Status:   &corev1.NodeStatus{Capacity: node.GetStatus().GetCapacity(), Allocatable: node.GetStatus().GetAllocatable()},
	}
	for k, v := range node.GetMetadata().GetLabels() {
		if k == labelHostname {
			v = out.Metadata.Name
		}
		out.Metadata.Labels[k] = v
	}
	for _, t := range node.GetSpec().GetTaints() {
		if !strings.HasPrefix(t.GetKey(), "node.kubernetes.io/") { // its condition of the moment
			out.Spec.Taints = append(out.Spec.Taints, t)
		}
	}
	return out
}

// planned is a pod of a plan, with how many follow of which the same is said.
type planned struct {
	*schedulingv1.PlannedPod
	more int
}

// alike makes one of pods in a row that would wait for the same reason.
func alike(pods []*schedulingv1.PlannedPod) []planned {
	var out []planned
	for _, p := range pods {
		if n := len(out); n > 0 && p.GetNodeName() == "" {
			last := &out[n-1]
			if last.GetNodeName() == "" && last.GetNamespace() == p.GetNamespace() && last.GetMessage() == p.GetMessage() && last.GetFromNode() == p.GetFromNode() {
				last.more++
				continue
			}
		}
		out = append(out, planned{PlannedPod: p})
	}
	return out
}

// printPlan prints where each pod would go, and how many would.
func (c *cli) printPlan(out *schedulingv1.PlanResponse, drained bool) error {
	header := []string{"NAME", "NODE", "REASON"}
	if drained {
		header = []string{"NAME", "FROM", "NODE", "REASON"}
	}
	lines := [][]string{header}
	for _, p := range alike(out.GetPods()) {
		name, node, reason := p.GetName(), p.GetNodeName(), p.GetMessage()
		if p.GetNamespace() != c.ns() {
			name = p.GetNamespace() + "/" + name
		}
		if p.more > 0 {
			name += fmt.Sprintf(" and %d more", p.more)
		}
		if node == "" {
			node = "-"
		}
		if len(p.GetVictims()) > 0 {
			reason = "preempts " + strings.Join(p.GetVictims(), ", ")
		}
		line := []string{name}
		if drained {
			from := p.GetFromNode()
			if from == "" {
				from = "-"
			}
			line = append(line, from)
		}
		line = append(line, node)
		if reason = withoutPreemption(reason); reason != "" {
			line = append(line, reason)
		}
		lines = append(lines, line)
	}
	if len(lines) > 1 {
		if err := (&rows{out: c.Out}).write(lines...); err != nil {
			return err
		}
		c.print("")
	}
	total := out.GetPlaced() + out.GetUnplaced()
	switch {
	case total == 0:
		c.print("There is nothing to place.")
	case total == 1 && out.GetPlaced() == 1:
		c.print("It would be placed.")
	case out.GetUnplaced() == 0:
		c.print("All %d would be placed.", total)
	default:
		c.print("%d of %d would be placed, %d would wait.", out.GetPlaced(), total, out.GetUnplaced())
	}
	return nil
}
