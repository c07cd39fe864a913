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
	if v.flags.wait {
		var cancel context.CancelFunc
		ctx, cancel = bounded(ctx, v.flags.timeout)
		defer cancel()
	}
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
	w, err := client.For[*corev1.Pod](v.conn).Watch(ctx, client.WatchOptions{Namespace: t.namespace, FieldSelector: "metadata.name=" + t.name})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	for {
		response, err := w.Recv()
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
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
	dropped := v.dropped(ctx)
	later := v.later(ctx, id, of)
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
	v.print("%s: %d spans of %d services\n%s", title, len(t.Spans), len(services), waterfall.Summary(t))
	fmt.Fprint(v.Out, waterfall.Draw(t, waterfall.Options{Width: v.width(), Colour: isColourful(v.Out), All: v.flags.all}))
	v.notes(ctx, t, of, dropped, later)
	return nil
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
		note("%d spans are missing: others name them as parents, and they have not come.", t.Missing)
	}
	if dropped != nil && *dropped > 0 {
		note("%d spans were dropped by running services, of this trace or others: `trireme get components -o yaml`, .status.spansDropped.", *dropped)
	}
	if pod := podOf(of); pod != nil && !t.Ready && ready(pod) {
		note("The pod is Ready, but the span that says so has not come.")
	}
	if pod := podOf(of); pod != nil && !ready(pod) {
		note("The pod is %s and not Ready: this is its trace so far.", pod.GetStatus().GetPhase())
	}
	for _, id := range t.Linked {
		note("Linked, %s:  trireme trace %s", v.describeTrace(ctx, id), id)
	}
	for _, id := range later {
		note("Later, %s:  trireme trace %s", v.describeTrace(ctx, id), id)
	}
	for _, name := range v.podsOf(ctx, of) {
		note("Its pods have traces of their own:  trireme trace pod/%s", name)
	}
	if len(lines) > 0 {
		v.print("\n%s", strings.Join(lines, "\n"))
	}
}

// describeTrace is the first span of a trace, in words.
func (v *traceView) describeTrace(ctx context.Context, id string) string {
	spans, err := v.source.get(ctx, id)
	if err != nil || len(spans) == 0 {
		return "not kept any more"
	}
	first := spans[0]
	text := first.Name
	for _, s := range spans {
		if name := s.Attributes[string(tracing.KeyName)]; name != "" {
			return fmt.Sprintf("%s of %s %s", text, s.Attributes[string(tracing.KeyKind)], name)
		}
	}
	return text
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
		names = append(names, p.GetMetadata().GetName())
	}
	return names[:min(most, len(names))]
}

// later finds the traces of what happened to a pod after it was Ready.
func (v *traceView) later(ctx context.Context, id string, of *located) []string {
	pod := podOf(of)
	if pod == nil {
		return nil
	}
	found, err := v.source.find(ctx, "nodeagent", string(tracing.KeyPodUID), pod.GetMetadata().GetUid())
	if err != nil {
		return nil // the trace itself is worth showing
	}
	return slices.DeleteFunc(found, func(other string) bool { return strings.TrimLeft(other, "0") == strings.TrimLeft(id, "0") })
}

// dropped is how many spans the control plane's processes say they lost; nil where none says.
func (v *traceView) dropped(ctx context.Context) *int64 {
	list, err := client.For[*componentv1.Component](v.conn).List(ctx, client.ListOptions{})
	if err != nil {
		return nil
	}
	var sum *int64
	for _, c := range list.Items {
		if c.GetStatus() != nil && c.GetStatus().SpansDropped != nil {
			if sum == nil {
				sum = new(int64)
			}
			*sum += c.GetStatus().GetSpansDropped()
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
