package podworker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/tracing"
	"trireme.dev/kit/telemetry/telemetrytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/apitest"
)

// own are the spans of a pod's trace, later those of traces that are linked to it, by the name of their roots.
func own(t *testing.T, spans *telemetrytest.Spans, pod *corev1.Pod) (own []telemetrytest.Span, later map[string][][]telemetrytest.Span) {
	t.Helper()
	id := tracing.SpanContext(pod.GetMetadata())
	if !id.IsSampled() {
		t.Fatalf("pod carries trace %q", pod.GetMetadata().GetTraceContext())
	}
	all := spans.Ended()
	later = map[string][][]telemetrytest.Span{}
	for _, s := range all {
		for _, l := range s.Links {
			if l.Equal(id) {
				later[s.Name] = append(later[s.Name], telemetrytest.Of(all, s.Trace))
			}
		}
	}
	return telemetrytest.Of(all, id.TraceID().String()), later
}

func named(spans []telemetrytest.Span, name string) []telemetrytest.Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s telemetrytest.Span) bool { return s.Name != name })
}

const (
	call  = "trireme.core.v1.PodService/"
	below = call + "Create/" + call + "Create" // the client's span and the gateway's
)

func TestTraceOfAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := telemetrytest.RecordSpans(t, apitest.TraceRoot)
		a := newAgent(t)
		a.runtime.pullTime = 3 * time.Second
		p := newPod("web", "serve")
		p.Spec.Containers[0].ImagePullPolicy = proto.String("Always")
		p = a.create(p)
		after(time.Minute)
		mine, later := own(t, spans, p)
		const written = "status write/" + call + "UpdateStatus/" + call + "UpdateStatus"
		want := []string{call + "Create", below}
		for _, s := range []string{
			"Admission", "Authentication", "Authorization", "Ready", "Txn", "pod worker wait", "status write",
			"status write/" + call + "UpdateStatus", written, written + "/Admission", written + "/Authentication",
			written + "/Authorization", written + "/Txn", "syncPod", "syncPod/Admit", "syncPod/CreateContainer", "syncPod/EnsureImage", "syncPod/EnsureImage/PullImage",
			"syncPod/MountVolumes", "syncPod/RunPodSandbox", "syncPod/RunPodSandbox/SetUpNetwork", "syncPod/StartContainer", "watch delivery",
		} {
			want = append(want, below+"/"+s)
		}
		if got := telemetrytest.Paths(mine); !slices.Equal(got, want) {
			t.Errorf("spans:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		ready := named(mine, "Ready")
		if len(ready) != 1 || !ready[0].Start.Equal(ready[0].End) {
			t.Fatalf("Ready: %v", ready)
		}
		// Time is virtual: whatever takes any is in a span of its own.
		if gaps := telemetrytest.Gaps(mine, ready[0].Start, 0); len(gaps) > 0 {
			t.Errorf("not covered: %v", gaps)
		}
		if pull := named(mine, "PullImage")[0]; pull.End.Sub(pull.Start) != 3*time.Second || pull.Attributes["container.image.name"] != "busybox:1" {
			t.Errorf("pull: %+v", pull)
		}
		for _, s := range mine {
			if s.End.After(ready[0].Start) || s.Err != "" {
				t.Errorf("%s ends %s after Ready, error %q", s.Name, s.End.Sub(ready[0].Start), s.Err)
			}
		}
		if len(later) > 0 {
			t.Errorf("later life of a pod that only runs: %v", later)
		}
	})
}

func TestTraceOfWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := telemetrytest.RecordSpans(t, apitest.TraceRoot)
		a := newAgent(t)
		p := newPod("noimage")
		p.Spec.Containers[0].Image = "absent/thing:1"
		p = a.create(p)
		after(65 * time.Second)
		mine, _ := own(t, spans, p)
		var waits []string
		for _, s := range named(mine, waitSpan) {
			waits = append(waits, s.Attributes["trireme.reason"]+" "+s.End.Sub(s.Start).Round(time.Second).String())
		}
		if want := []string{" 0s", "ImagePullBackOff 10s", "ImagePullBackOff 20s"}; !slices.Equal(waits, want) {
			t.Errorf("waits %q, want %q", waits, want)
		}
		pulls := named(mine, "PullImage")
		if len(pulls) != 3 || pulls[2].Err == "" {
			t.Errorf("pulls: %+v", pulls)
		}
		if gaps := telemetrytest.Gaps(mine, pulls[2].Start, 0); len(gaps) > 0 {
			t.Errorf("not covered: %v", gaps)
		}
	})
}

func TestLaterLifeIsTracesOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := telemetrytest.RecordSpans(t, apitest.TraceRoot)
		a := newAgent(t)
		p := a.create(newPod("web", "sh", "-c", "sleep 60; exit 1"))
		after(50 * time.Second)
		before, _ := own(t, spans, p)
		after(130 * time.Second)
		a.delete("web", 5)
		after(20 * time.Second)
		if !a.gone("web") {
			t.Fatal("the pod is still there")
		}
		mine, later := own(t, spans, p)
		if len(mine) != len(before) {
			t.Errorf("the pod's own trace grew after it was Ready:\n%s", strings.Join(telemetrytest.Paths(mine), "\n"))
		}
		restarts := later[syncSpan]
		if len(restarts) != 2 {
			t.Fatalf("%d restarts in traces of their own, want 2", len(restarts))
		}
		for _, path := range []string{"syncPod/StartContainer", "syncPod/status write"} {
			if got := telemetrytest.Paths(restarts[0]); !slices.Contains(got, path) {
				t.Errorf("restart has %v, wants %s", got, path)
			}
		}
		wait := named(restarts[1], waitSpan)
		if len(wait) != 1 || wait[0].Attributes["trireme.reason"] != "CrashLoopBackOff" || wait[0].End.Sub(wait[0].Start).Round(time.Second) != 10*time.Second {
			t.Errorf("back-off of the second restart: %+v", wait)
		}
		end := later[terminateSpan]
		if len(end) != 1 {
			t.Fatalf("%d ends", len(end))
		}
		for _, name := range []string{"StopContainer", "RemovePodSandbox", "UnmountVolumes", "status write", call + "Delete"} {
			if !slices.Contains(telemetrytest.Paths(end[0]), terminateSpan+"/"+name) {
				t.Errorf("the end has %v, wants %s", telemetrytest.Paths(end[0]), name)
			}
		}
	})
}

func TestNoSpansOfAPodThatIsNotSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := telemetrytest.RecordSpans(t, func(string) bool { return false })
		a := newAgent(t)
		a.create(newPod("web", "sh", "-c", "sleep 5; exit 1"))
		after(time.Minute)
		a.delete("web", 1)
		after(time.Minute)
		if got := spans.Ended(); len(got) > 0 || !a.gone("web") {
			t.Errorf("%d spans, gone %v: %v", len(got), a.gone("web"), telemetrytest.Paths(got))
		}
	})
}
