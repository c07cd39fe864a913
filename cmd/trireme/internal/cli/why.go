package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	"trireme.dev/cmd/trireme/internal/cli/table"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// whyNodes are listed unless more are asked for.
const whyNodes = 10

func (c *cli) whyCommand() *cobra.Command {
	var (
		output string
		nodes  int32
	)
	cmd := &cobra.Command{
		Use:   "why (POD | pod POD | podgroup GROUP | TYPE/NAME)",
		Short: "Say why a pod waits to be scheduled, and what would help",
		Long: `Say why a pod waits to be scheduled. The first line is what would help, and why; then how it stands in the queue, what
would come of an attempt now, node by node with scores, the last attempts, and which changes would have it tried again.
Of a pod group, the first of its pods that waits is explained.

The scheduler that leads answers; nothing is changed.`,
		Example: "  trireme why pod/train-2\n  trireme why train-2 --nodes -1     # all nodes\n  trireme why podgroup/train -o yaml",
		Args:    atLeast(1, "a pod or a pod group"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			if output != "" && output != "json" && output != "yaml" {
				return usage("-o %s: want json or yaml", output)
			}
			name, err := c.whyPod(ctx, args)
			if err != nil {
				return err
			}
			out, err := schedulingv1.NewSchedulerServiceClient(c.conn).Explain(ctx, &schedulingv1.ExplainRequest{
				Namespace: c.ns(), Name: name, MaxNodes: nodes,
			})
			if err != nil {
				return apierr.FromStatus(err)
			}
			if output != "" {
				return c.printMessage(output, out)
			}
			return c.printWhy(out, time.Now())
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`format`: json, yaml")
	cmd.Flags().Int32Var(&nodes, "nodes", whyNodes, "`number` of nodes to list one by one; -1 for all")
	c.completeWords(cmd, "output", "json", "yaml")
	cmd.ValidArgsFunction = c.completePods
	return cmd
}

// printMessage prints a message that is no object.
func (c *cli) printMessage(format string, m proto.Message) error {
	encode := manifest.EncodeMessageYAML
	if format == "json" {
		encode = manifest.EncodeMessageJSON
	}
	out, err := encode(m)
	if err != nil {
		return err
	}
	_, err = c.Out.Write(out)
	return err
}

// whyPod is the pod that arguments mean: a pod, or the first of a group that waits.
func (c *cli) whyPod(ctx context.Context, args []string) (string, error) {
	if len(args) == 1 && !strings.Contains(args[0], "/") {
		return args[0], nil
	}
	targets, err := c.targets(args)
	if err != nil {
		return "", err
	}
	if len(targets) != 1 || targets[0].name == "" {
		return "", usage("%s: want one pod or pod group", strings.Join(args, " "))
	}
	name := targets[0].name
	switch targets[0].kind.Name {
	case "Pod":
		return name, nil
	case "PodGroup":
	default:
		return "", usage("%s: only pods and pod groups are scheduled; `trireme get pods` lists what it has made", targets[0])
	}
	pods, err := client.For[*corev1.Pod](c.conn).List(ctx, client.ListOptions{Namespace: c.ns()})
	if err != nil {
		return "", err
	}
	members := slices.DeleteFunc(pods.Items, func(p *corev1.Pod) bool { return p.GetSpec().GetSchedulingGroup().GetPodGroupName() != name })
	slices.SortStableFunc(members, func(a, b *corev1.Pod) int {
		return cmp.Compare(waitsRank(a), waitsRank(b))
	})
	if len(members) == 0 {
		return "", fmt.Errorf("pod group %s/%s has no pods: create some with spec.schedulingGroup.podGroupName %s", c.ns(), name, name)
	}
	return members[0].GetMetadata().GetName(), nil
}

func waitsRank(p *corev1.Pod) int {
	switch {
	case ended(p):
		return 2
	case p.GetSpec().GetNodeName() != "":
		return 1
	}
	return 0
}

// printWhy prints an explanation: the sentence, the facts, the tables.
func (c *cli) printWhy(out *schedulingv1.ExplainResponse, now time.Time) error {
	c.print("%s", out.GetSummary())
	facts := whyFacts(out, now)
	if len(facts) > 0 {
		c.print("")
		if err := (&rows{out: c.Out}).write(facts...); err != nil {
			return err
		}
	}
	if left := out.GetPodGroup().GetLeft(); left != "" {
		c.print("\nNodes for pod %s, with those of its group in place that fit:", left)
	}
	for _, lines := range [][][]string{whyNodeRows(out), whyPlacementRows(out), whyAttemptRows(out, now), whyWakeRows(out)} {
		if len(lines) < 2 {
			continue
		}
		c.print("")
		if err := (&rows{out: c.Out}).write(lines...); err != nil {
			return err
		}
	}
	return nil
}

// current is what would come of an attempt now; nil where nothing was tried out.
func current(out *schedulingv1.ExplainResponse) *schedulingv1.Attempt {
	if a := out.GetAttempts(); len(a) > 0 && a[0].GetNumber() == 0 {
		return a[0]
	}
	return nil
}

func whyFacts(out *schedulingv1.ExplainResponse, now time.Time) [][]string {
	var lines [][]string
	fact := func(name, format string, args ...any) {
		lines = append(lines, []string{name, fmt.Sprintf(format, args...)})
	}
	state := strings.ToLower(strings.TrimPrefix(out.GetState().String(), "POD_STATE_"))
	state = strings.ReplaceAll(state, "_", " ")
	if q := out.GetQueue(); q != nil {
		state += " for " + table.Since(now, q.GetSince().AsTime())
		if out.GetState() == schedulingv1.PodState_POD_STATE_ACTIVE {
			state += fmt.Sprintf(", %d ahead", q.GetAhead())
		}
	}
	if n := out.GetAttemptCount(); n > 0 {
		state += fmt.Sprintf(", %d attempt%s so far", n, pluralS(int(n)))
	}
	fact("State:", "%s", state)
	if out.GetNodeName() != "" {
		fact("Node:", "%s", out.GetNodeName())
	}
	q := out.GetQueue()
	if q.GetGate() != "" {
		fact("Held back by:", "%s: %s", q.GetGatePlugin(), q.GetGate())
	}
	if retry := q.GetNextRetry(); retry != nil {
		fact("Next attempt:", "%s", inTime(now, retry.AsTime()))
	}
	if out.GetNominatedNodeName() != "" {
		fact("Nominated:", "room is being made on node %s", out.GetNominatedNodeName())
	}
	if at := out.GetPredictedStart(); at != nil {
		fact("Starts by:", "%s (%s), on node %s, when running pods reach their deadlines",
			at.AsTime().Local().Format(time.DateTime), inTime(now, at.AsTime()), out.GetPredictedNode())
	}
	if g := out.GetPodGroup(); g != nil {
		if g.GetExists() {
			fit := ""
			if g.Fitted != nil {
				fit = fmt.Sprintf(", %d of them fit", g.GetFitted())
			}
			fact("Pod group:", "%s, %d at once; %d waiting%s, %d scheduled", g.GetName(), g.GetMinCount(), g.GetWaiting(), fit, g.GetScheduled())
		} else {
			fact("Pod group:", "%s, which does not exist; %d waiting", g.GetName(), g.GetWaiting())
		}
	}
	if a := current(out); a.GetPreemption() != "" {
		text := strings.TrimPrefix(a.GetPreemption(), "preemption: ")
		if _, reasons, ok := strings.Cut(text, " nodes are available: "); ok {
			text = "no; " + strings.TrimSuffix(reasons, ".")
		}
		fact("Preemption:", "%s", text)
	}
	return lines
}

func pluralS(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func inTime(now, at time.Time) string {
	if d := at.Sub(now); d > 0 {
		return "in " + table.Age(d+time.Second-1)
	}
	return "now"
}

// whyNodeRows are the nodes that fit, with what speaks for them, and the others, with what is against them.
func whyNodeRows(out *schedulingv1.ExplainResponse) [][]string {
	lines := [][]string{{"NODE", "FITS", "SCORE", "WHY"}}
	a := current(out)
	for _, n := range a.GetNodes() {
		if n.GetPlugin() == "" && len(n.GetReasons()) == 0 {
			lines = append(lines, []string{n.GetNodeName(), "yes", fmt.Sprint(n.GetScore()), scores(n.GetScores())})
			continue
		}
		why := rejection(n.GetPlugin(), n.GetReasons())
		for _, r := range n.GetFurther() {
			why += "; " + rejection(r.GetPlugin(), r.GetReasons())
		}
		lines = append(lines, []string{n.GetNodeName(), "no", "", why})
	}
	return lines
}

func rejection(plugin string, reasons []string) string {
	text := strings.Join(reasons, ", ")
	if plugin != "" {
		text = plugin + ": " + text
	}
	return text
}

// scores lists what plugins gave, most first.
func scores(byPlugin map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(byPlugin), func(a, b string) int {
		return cmp.Or(cmp.Compare(byPlugin[b], byPlugin[a]), strings.Compare(a, b))
	})
	for i, n := range names {
		names[i] = fmt.Sprintf("%s %d", n, byPlugin[n])
	}
	return strings.Join(names, ", ")
}

// whyPlacementRows are the domains in which the group was tried.
func whyPlacementRows(out *schedulingv1.ExplainResponse) [][]string {
	lines := [][]string{{"DOMAIN", "FIT", "WHY NOT MORE"}}
	g := out.GetPodGroup()
	for _, p := range g.GetPlacements() {
		lines = append(lines, []string{p.GetName(), fmt.Sprintf("%d of %d", p.GetFitted(), g.GetWaiting()), p.GetMessage()})
	}
	return lines
}

func whyAttemptRows(out *schedulingv1.ExplainResponse, now time.Time) [][]string {
	lines := [][]string{{"ATTEMPT", "AGO", "TOOK", "RESULT"}}
	for _, a := range out.GetAttempts() {
		if a.GetNumber() == 0 {
			continue
		}
		result := withoutPreemption(a.GetMessage())
		if a.GetPreemption() != "" {
			result = a.GetPreemption()
		}
		lines = append(lines, []string{
			fmt.Sprint(a.GetNumber()), table.Since(now, a.GetTime().AsTime()), a.GetTook().AsDuration().Round(10 * time.Microsecond).String(), result,
		})
	}
	return lines
}

// withoutPreemption is a message without what is said about preemption behind it: that nothing came of it is clear.
func withoutPreemption(message string) string {
	message, _, _ = strings.Cut(message, " preemption: ")
	return message
}

// whyWakeRows are the changes that have it tried again, with the plugins that wait for them.
func whyWakeRows(out *schedulingv1.ExplainResponse) [][]string {
	lines := [][]string{{"TRIED AGAIN ON", "FOR"}}
	events, plugins := map[string][]string{}, map[string][]string{} // by plugin, by events
	for _, w := range out.GetWakes() {
		events[w.GetPlugin()] = append(events[w.GetPlugin()], w.GetEvent())
	}
	for _, p := range slices.Sorted(maps.Keys(events)) {
		text := strings.Join(events[p], ", ")
		plugins[text] = append(plugins[text], p)
	}
	for _, text := range slices.Sorted(maps.Keys(plugins)) {
		lines = append(lines, []string{text, strings.Join(plugins[text], ", ")})
	}
	return lines
}
