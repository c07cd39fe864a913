package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/tracing"
	"trireme.dev/cmd/trireme/internal/cli/trace"
	"trireme.dev/cmd/trireme/internal/cli/waterfall"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

const (
	// spansArrive is how late spans come: services hand them over every five seconds unless told otherwise.
	spansArrive = 6 * time.Second
	// lookAgain is the time between two looks at a trace that is not complete.
	lookAgain = 200 * time.Millisecond
	// plainWidth is how wide the picture is where there is no terminal.
	plainWidth = 120
)

type traceFlags struct {
	output        string
	wait          bool
	timeout       time.Duration
	last          int
	allNamespaces bool
	labels        string
	traces        string
	width         int
	all           bool
}

func (c *cli) traceCommand() *cobra.Command {
	f := &traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace (TYPE/NAME | TRACE-ID | --last N)",
		Short: "Show where the time went from apply to Ready",
		Long: `Show the trace of a pod, or of any other object: one row per span in the order of things, its bar over one scale of
time. What the pod waited for at each moment is filled in and marked *: the critical path. Times of 20 ms and more that no
span covers are rows of their own.

Traces are kept by "trireme up" (the newest 64 MiB of them) or by a Jaeger; the context says where, or --traces does.
docs/tracing.md explains the spans.`,
		Example: `  trireme trace pod/web
  trireme trace pod/web --wait                 # until it is Ready
  trireme trace deployment/web
  trireme trace 4bf92f3577b34da6a3ce929d0e0e4736 -o json
  trireme trace --last 20 -l app=web           # p50, p95 and max per step, the slowest pods`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.last > 0 {
				return exactly(0, "no arguments beside --last")(cmd, args)
			}
			return exactly(1, "TYPE/NAME or a trace id")(cmd, args)
		},
		RunE: c.online(func(ctx context.Context, args []string) error { return c.trace(ctx, f, args) }),
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "", "`format`: json")
	flags.BoolVar(&f.wait, "wait", false, "wait until the pod is Ready")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "how long to --wait")
	flags.IntVar(&f.last, "last", 0, "compare the `N` pods that were created last")
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "with --last: pods of all namespaces")
	flags.StringVarP(&f.labels, "selector", "l", "", "with --last: label `selector`: app=web")
	flags.StringVar(&f.traces, "traces", "", "`address` to ask for traces: unix:///path or http://host:port of a Jaeger, instead of that of the context")
	flags.IntVar(&f.width, "width", 0, "`columns` of the picture (default: those of the terminal)")
	flags.BoolVar(&f.all, "all", false, "show each of many spans of one name")
	cmd.ValidArgsFunction = c.completeTargets
	c.completeWords(cmd, "output", "json")
	return cmd
}

func (c *cli) trace(ctx context.Context, f *traceFlags, args []string) error {
	if f.output != "" && f.output != "json" {
		return usage("-o %s: want json", f.output)
	}
	if f.last == 0 && (f.allNamespaces || f.labels != "") {
		return usage("--all-namespaces and --selector go with --last")
	}
	address := f.traces
	if address == "" {
		address = c.context.Traces
	}
	if address == "" {
		return errors.New("this context does not say where traces are: a cluster of `trireme up` keeps them unless OTEL_* variables send them " +
			"elsewhere; name a Jaeger with --traces http://HOST:16686, or as `traces:` of the context")
	}
	source, err := newTraceSource(address)
	if err != nil {
		return err
	}
	defer source.close()
	v := &traceView{cli: c, flags: f, source: source}
	if f.last > 0 {
		return v.compare(ctx)
	}
	if isTraceID(args[0]) {
		return v.show(ctx, strings.ToLower(args[0]), nil)
	}
	targets, err := c.targets(args)
	if err != nil {
		return err
	}
	if targets[0].name == "" {
		return usage("%s: want TYPE/NAME, such as pod/web, or a trace id of 32 digits", args[0])
	}
	return v.showObject(ctx, targets[0])
}

func isTraceID(text string) bool {
	return len(text) == 32 && strings.Trim(strings.ToLower(text), "0123456789abcdef") == ""
}

// traceView is one run of `trireme trace`.
type traceView struct {
	*cli

	flags  *traceFlags
	source *traceSource
}

func (v *traceView) showObject(ctx context.Context, t target) error {
	object, err := v.resource(t.kind).Get(ctx, t.namespace, t.name)
	if err != nil {
		return err
	}
	if pod, ok := object.(*corev1.Pod); ok && v.flags.wait && !ready(pod) {
		if object, err = v.untilReady(ctx, t); err != nil {
			return err
		}
	}
	meta := object.GetMetadata()
	switch {
	case meta.GetTraceContext() == "":
		return fmt.Errorf("%s has no trace: tracing was off in the gateway when it was created (a gateway traces when "+
			"OTEL_EXPORTER_OTLP_ENDPOINT says where spans go)", t)
	case !tracing.Sampled(meta):
		return fmt.Errorf("%s was not sampled: the gateway's OTEL_TRACES_SAMPLER decides which new objects are; "+
			"OTEL_TRACES_SAMPLER=always_on traces all", t)
	}
	return v.show(ctx, tracing.SpanContext(meta).TraceID().String(), &located{t.kind, object})
}

// untilReady watches the pod until it is Ready, or never will be.
func (v *traceView) untilReady(ctx context.Context, t target) (client.Object, error) {
	// No deadline of the call: the gateway would end it a moment before, with an error of its own.
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(v.flags.timeout, cancel).Stop()
	w, err := client.For[*corev1.Pod](v.conn).Watch(watching, client.WatchOptions{Namespace: t.namespace, FieldSelector: "metadata.name=" + t.name})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	for {
		response, err := w.Recv()
		switch {
		case err != nil && watching.Err() != nil && ctx.Err() == nil:
			return nil, fmt.Errorf("%s is not Ready after %s; `trireme describe %s` says why, and without --wait its trace so far is shown", t, v.flags.timeout, t)
		case err != nil:
			return nil, err
		}
		for _, e := range response.Events {
			phase := e.Object.GetStatus().GetPhase()
			if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
				return nil, apierr.NotFound("Pod", t.namespace+"/"+t.name)
			}
			if ready(e.Object) || phase == "Succeeded" || phase == "Failed" {
				return e.Object, nil
			}
		}
	}
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.GetStatus().GetConditions(), func(c *corev1.PodCondition) bool {
		return c.GetType() == "Ready" && c.GetStatus() == "True"
	})
}

// fetch gets a trace, and again while spans are sure to be on their way: those of a pod that is Ready, or parents of
// spans that have come.
func (v *traceView) fetch(ctx context.Context, id string, of *located) (*trace.Trace, error) {
	wantReady := false
	if of != nil {
		pod, ok := of.object.(*corev1.Pod)
		wantReady = ok && ready(pod)
	}
	shown := v.progress()
	defer shown.clear()
	deadline := time.Now().Add(spansArrive)
	for {
		spans, err := v.source.get(ctx, id)
		if err != nil && !errors.Is(err, errNoTrace) {
			return nil, err
		}
		t := trace.Analyze(spans)
		complete := len(spans) > 0 && t.Missing == 0 && (t.Ready || !wantReady)
		if complete || of == nil || time.Now().After(deadline) {
			return t, err
		}
		shown.show("waiting for the last spans to arrive")
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookAgain):
		}
	}
}

func (v *traceView) show(ctx context.Context, id string, of *located) error {
	t, err := v.fetch(ctx, id, of)
	if errors.Is(err, errNoTrace) {
		name := "trace " + id
		if of != nil {
			name = fmt.Sprintf("the trace of %s (%s)", of, id)
		}
		return fmt.Errorf("%s is not at %s: newer ones have pushed it out, or its spans went elsewhere", name, v.source.address)
	}
	if err != nil {
		return err
	}
	dropped := v.dropped(ctx, of)
	later := v.later(ctx, id, t)
	if v.flags.output == "json" {
		return v.printDocument(t, id, of, dropped, later)
	}
	services := map[string]bool{}
	for _, s := range t.Spans {
		services[s.Service] = true
	}
	title := "trace " + id
	if of != nil {
		title = fmt.Sprintf("%s in %s, trace %s", of, of.object.GetMetadata().GetNamespace(), id)
		if of.object.GetMetadata().GetNamespace() == "" {
			title = fmt.Sprintf("%s, trace %s", of, id)
		}
	}
	v.print("%s: %s of %s\n%s", title, counted(len(t.Spans), "span"), counted(len(services), "service"), waterfall.Summary(t))
	fmt.Fprint(v.Out, waterfall.Draw(t, waterfall.Options{Width: v.width(), Colour: isColourful(v.Out), All: v.flags.all}))
	v.notes(ctx, t, of, dropped, later)
	return nil
}

// counted is a number of things in words.
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// width of the picture.
func (v *traceView) width() int {
	if v.flags.width > 0 {
		return v.flags.width
	}
	if fd, is := terminalOf(v.Out); is {
		if width, _, err := term.GetSize(fd); err == nil {
			return width
		}
	}
	return plainWidth
}

// notes are what the picture does not show.
func (v *traceView) notes(ctx context.Context, t *trace.Trace, of *located, dropped *int64, later []string) {
	var lines []string
	note := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if t.Missing > 0 {
		note("%s missing: named as a parent, and not received.", counted(t.Missing, "span"))
	}
	if dropped != nil && *dropped > 0 {
		note("%s dropped by the services that run, of this trace or others: `trireme get components -o yaml`, .status.spansDropped.", counted(int(*dropped), "span"))
	}
	if pod := podOf(of); pod != nil && !t.Ready && ready(pod) {
		note("The pod is Ready, but the span that says so has not come.")
	}
	if pod := podOf(of); pod != nil && !ready(pod) {
		note("The pod is %s and not Ready: this is its trace so far.", pod.GetStatus().GetPhase())
	}
	pods := v.podsOf(ctx, of)
	for _, id := range t.Linked {
		text, command := v.describeTrace(ctx, id, true)
		if pods != nil && strings.HasPrefix(command, "pod/") {
			continue // it is among them
		}
		note("Linked, %s:  trireme trace %s", text, command)
	}
	for _, id := range later {
		text, command := v.describeTrace(ctx, id, false)
		note("Later, %s:  trireme trace %s", text, command)
	}
	for _, name := range pods {
		note("One of its pods:  trireme trace %s", name)
	}
	if len(lines) > 0 {
		v.print("\n%s", strings.Join(lines, "\n"))
	}
}

// describeTrace says what a trace begins with, and what to call it: the trace of a pod by the pod's name.
func (v *traceView) describeTrace(ctx context.Context, id string, byName bool) (text, command string) {
	spans, err := v.source.get(ctx, id)
	if err != nil || len(spans) == 0 {
		return "not kept any more", id
	}
	text = spans[0].Title()
	for _, s := range spans {
		name, namespace := s.Attributes[string(tracing.KeyPod)], s.Attributes[string(tracing.KeyNamespace)]
		if name != "" && byName {
			return text + " of a pod", "pod/" + name + v.inNamespace(namespace)
		}
		if kind, name := s.Attributes[string(tracing.KeyKind)], s.Attributes[string(tracing.KeyName)]; kind != "" && name != "" {
			return fmt.Sprintf("%s of %s %s", text, kind, name), id
		}
	}
	return text, id
}

// inNamespace is the flag by which a command finds what is in another namespace.
func (v *traceView) inNamespace(namespace string) string {
	if namespace == "" || namespace == v.ns() {
		return ""
	}
	return " -n " + namespace
}

func podOf(of *located) *corev1.Pod {
	if of == nil {
		return nil
	}
	pod, ok := of.object.(*corev1.Pod)
	if !ok {
		return nil
	}
	return pod
}

// podsOf names the first pods of a workload.
func (v *traceView) podsOf(ctx context.Context, of *located) []string {
	const most = 3
	var labels map[string]string
	if of == nil {
		return nil
	}
	switch o := of.object.(type) {
	case *appsv1.Deployment:
		labels = o.GetSpec().GetSelector().GetMatchLabels()
	case *appsv1.ReplicaSet:
		labels = o.GetSpec().GetSelector().GetMatchLabels()
	}
	if len(labels) == 0 {
		return nil
	}
	var terms []string
	for k, value := range labels {
		terms = append(terms, k+"="+value)
	}
	list, err := client.For[*corev1.Pod](v.conn).List(ctx, client.ListOptions{
		Namespace: of.object.GetMetadata().GetNamespace(), LabelSelector: strings.Join(terms, ","), Limit: most,
	})
	if err != nil {
		return nil // a hint less
	}
	var names []string
	for _, p := range list.Items {
		names = append(names, "pod/"+p.GetMetadata().GetName()+v.inNamespace(p.GetMetadata().GetNamespace()))
	}
	return names[:min(most, len(names))]
}

// later finds the traces of what happened to a pod after it was Ready: those that point to this one.
func (v *traceView) later(ctx context.Context, id string, t *trace.Trace) []string {
	uids := map[string]bool{}
	for _, s := range t.Spans {
		if uid := s.Attributes[string(tracing.KeyPodUID)]; uid != "" {
			uids[uid] = true
		}
	}
	var out []string
	for uid := range uids {
		if len(uids) > 1 {
			break // the trace of a workload: each of its pods has its own
		}
		found, err := v.source.find(ctx, "nodeagent", string(tracing.KeyPodUID), uid)
		if err != nil {
			break // the trace itself is worth showing
		}
		slices.Reverse(found) // oldest first
		for _, other := range found {
			spans, err := v.source.get(ctx, other)
			if err == nil && pointsTo(spans, id) {
				out = append(out, other)
			}
		}
	}
	return out
}

func pointsTo(spans []*trace.Span, id string) bool {
	return slices.ContainsFunc(spans, func(s *trace.Span) bool {
		return slices.ContainsFunc(s.Links, func(l trace.Link) bool { return l.Trace == id })
	})
}

// dropped is how many spans the processes that had a part in the trace say they lost, of whatever traces: those of the
// control plane, and those of the node of a pod. Nil where none says.
func (v *traceView) dropped(ctx context.Context, of *located) *int64 {
	var all []*componentv1.ComponentStatus
	if list, err := client.For[*componentv1.Component](v.conn).List(ctx, client.ListOptions{}); err == nil {
		for _, c := range list.Items {
			all = append(all, c.GetStatus())
		}
	}
	if of != nil {
		if pod, ok := of.object.(*corev1.Pod); ok && pod.GetSpec().GetNodeName() != "" {
			info, err := nodev1.NewNodeServiceClient(v.conn).GetInfo(ctx, &nodev1.GetInfoRequest{NodeName: pod.GetSpec().GetNodeName()})
			if err == nil { // a node that does not answer says nothing
				all = append(all, info.GetAgent())
				for _, p := range info.GetDevicePlugins() {
					all = append(all, p.GetStatus())
				}
			}
		}
	}
	var sum *int64
	for _, s := range all {
		if s != nil && s.SpansDropped != nil {
			if sum == nil {
				sum = new(int64)
			}
			*sum += s.GetSpansDropped()
		}
	}
	return sum
}

func (v *traceView) printDocument(t *trace.Trace, id string, of *located, dropped *int64, later []string) error {
	d := t.Document(id)
	d.SpansDropped = dropped
	d.LaterTraces = append(d.LaterTraces, later...)
	if of != nil {
		meta := of.object.GetMetadata()
		d.Object = &trace.Object{Kind: of.kind.Name, Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: meta.GetUid()}
	}
	return v.printJSON(d)
}

func (v *traceView) printJSON(what any) error {
	e := json.NewEncoder(v.Out)
	e.SetIndent("", "  ")
	return e.Encode(what)
}
