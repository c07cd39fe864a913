package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// parse reads a pod from words: "policy=Never host init:a sidecar:s app:x".
func parsePod(words string) *corev1.Pod {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Uid: "u"}, Spec: &corev1.PodSpec{}}
	for _, w := range strings.Fields(words) {
		kind, name, _ := strings.Cut(w, ":")
		c := &corev1.Container{Name: name, Image: "i"}
		switch {
		case strings.HasPrefix(w, "policy="):
			p.Spec.RestartPolicy = proto.String(strings.TrimPrefix(w, "policy="))
		case w == "host":
			p.Spec.HostNetwork = proto.Bool(true)
		case kind == "init":
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case kind == "sidecar":
			c.RestartPolicy = proto.String("Always")
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case kind == "app":
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// parseSeen reads what a runtime has: "sandbox x#1=running y#0=exit:3 z#0=created w#0=old" (old: running another image).
func parseSeen(words string) *runtime.Pod {
	if words == "" {
		return nil
	}
	p := &runtime.Pod{UID: "u"}
	for _, w := range strings.Fields(words) {
		switch w {
		case "sandbox":
			p.Sandbox = &runtime.Sandbox{Ready: true, IPs: []string{"10.0.0.2"}}
			continue
		case "dead":
			p.Sandbox = &runtime.Sandbox{IPs: []string{"10.0.0.2"}}
			continue
		case "noip":
			p.Sandbox = &runtime.Sandbox{Ready: true}
			continue
		}
		id, state, _ := strings.Cut(w, "=")
		name, attempt, _ := strings.Cut(id, "#")
		c := &runtime.Container{ID: id, Name: name, SpecHash: Hash(&corev1.Container{Name: name, Image: "i"})}
		c.Attempt = number(attempt)
		state, code, _ := strings.Cut(state, ":")
		switch state {
		case "created":
			c.State = runtime.StateCreated
		case "running":
			c.State = runtime.StateRunning
		case "old":
			c.State, c.SpecHash = runtime.StateRunning, "other"
		case "exit":
			c.State = runtime.StateExited
			c.ExitCode = number(code)
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

func (a Actions) text() string {
	var out []string
	if a.Done {
		out = append(out, "done")
	}
	if a.RemoveSandbox {
		out = append(out, "remove-sandbox")
	}
	if a.CreateSandbox {
		out = append(out, "create-sandbox")
	}
	for _, s := range a.Stop {
		out = append(out, "stop:"+s.Container.ID)
	}
	for _, s := range a.Start {
		t := fmt.Sprintf("start:%s#%d", s.Container.GetName(), s.Attempt)
		if s.Replace != "" {
			t += "(replace)"
		}
		out = append(out, t)
	}
	for _, c := range a.Remove {
		out = append(out, "remove:"+c.ID)
	}
	return strings.Join(out, " ")
}

func TestCompute(t *testing.T) {
	for _, tt := range []struct {
		name, pod, seen, busy, restart, want string
		past                                 *corev1.PodStatus
	}{
		{name: "nothing yet", pod: "app:x", want: "create-sandbox"},
		{name: "sandbox stands", pod: "app:x app:y", seen: "sandbox", want: "start:x#0 start:y#0"},
		{name: "being started", pod: "app:x app:y", seen: "sandbox", busy: "x", want: "start:y#0"},
		{name: "runs", pod: "app:x", seen: "sandbox x#0=running"},
		{name: "sandbox dead", pod: "app:x", seen: "dead x#0=running", want: "remove-sandbox create-sandbox"},
		{name: "address lost", pod: "app:x", seen: "noip x#0=running", want: "remove-sandbox create-sandbox"},
		{name: "host network needs no address", pod: "host app:x", seen: "", want: "create-sandbox"},
		{name: "sandbox dead, never again", pod: "policy=Never app:x", seen: "dead x#0=running", want: "done"},
		{name: "sandbox dead, all succeeded", pod: "policy=OnFailure app:x app:y", seen: "dead x#0=exit:0 y#0=exit:0", want: "done"},
		{name: "sandbox dead, one to go", pod: "policy=OnFailure app:x app:y", seen: "dead x#0=exit:0 y#0=running", want: "remove-sandbox create-sandbox"},
		{name: "always restarts success", pod: "app:x", seen: "sandbox x#0=exit:0", want: "start:x#1"},
		{name: "on failure restarts failure", pod: "policy=OnFailure app:x", seen: "sandbox x#4=exit:1", want: "start:x#5"},
		{name: "on failure leaves success", pod: "policy=OnFailure app:x app:y", seen: "sandbox x#0=exit:0 y#0=running"},
		{name: "on failure all succeeded", pod: "policy=OnFailure app:x", seen: "sandbox x#0=exit:0", want: "done"},
		{name: "never", pod: "policy=Never app:x", seen: "sandbox x#0=exit:1", want: "done"},
		{name: "never, other runs", pod: "policy=Never app:x app:y", seen: "sandbox x#0=exit:1 y#0=running"},
		{name: "created and left", pod: "app:x", seen: "sandbox x#2=created", want: "start:x#2(replace)"},
		{name: "unknown", pod: "app:x", seen: "sandbox x#0=unknown", want: "stop:x#0"},
		{name: "other image, never", pod: "policy=Never app:x", seen: "sandbox x#0=old", want: "stop:x#0"},
		{name: "stopped to be replaced, never", pod: "policy=Never app:x", seen: "sandbox x#0=exit:143", restart: "x", want: "start:x#1"},
		{name: "one dead kept", pod: "app:x", seen: "sandbox x#1=exit:1 x#2=exit:1 x#3=running", want: "remove:x#1"},
		{name: "one dead kept, none runs", pod: "app:x", seen: "sandbox x#1=exit:1 x#2=exit:1", want: "start:x#3 remove:x#1"},

		{name: "first init", pod: "init:a init:b app:x", seen: "sandbox", want: "start:a#0"},
		{name: "init runs", pod: "init:a init:b app:x", seen: "sandbox a#0=running"},
		{name: "next init", pod: "init:a init:b app:x", seen: "sandbox a#0=exit:0", want: "start:b#0"},
		{name: "init done", pod: "init:a init:b app:x", seen: "sandbox a#0=exit:0 b#0=exit:0", want: "start:x#0"},
		{name: "init failed", pod: "init:a app:x", seen: "sandbox a#0=exit:1", want: "start:a#1"},
		{name: "init failed, never", pod: "policy=Never init:a app:x", seen: "sandbox a#0=exit:1", want: "done"},
		{name: "init succeeded, always", pod: "init:a app:x", seen: "sandbox a#0=exit:0 x#0=running"},
		{name: "init created", pod: "init:a app:x", seen: "sandbox a#0=created", want: "start:a#0(replace)"},
		{name: "init unknown", pod: "init:a app:x", seen: "sandbox a#0=unknown", want: "stop:a#0"},
		{name: "init being started", pod: "init:a app:x", seen: "sandbox", busy: "a"},
		{name: "app made, init is over", pod: "init:a app:x", seen: "sandbox a#0=exit:1 x#0=running"},
		{name: "app crashed, init is over", pod: "init:a app:x", seen: "sandbox x#0=exit:1", want: "start:x#1"},

		{name: "sidecar lets the next start", pod: "sidecar:s init:b app:x", seen: "sandbox s#0=running", want: "start:b#0"},
		{name: "sidecar lets the app start", pod: "sidecar:s app:x", seen: "sandbox s#0=running", want: "start:x#0"},
		{name: "sidecar is kept", pod: "sidecar:s app:x", seen: "sandbox s#0=exit:0 x#0=running", want: "start:s#1"},
		{name: "sidecar is kept during init", pod: "sidecar:s init:b app:x", seen: "sandbox s#0=exit:0 b#0=running", want: "start:s#1"},
		{name: "sidecar does not hold the end", pod: "policy=Never sidecar:s app:x", seen: "sandbox s#0=running x#0=exit:0", want: "done"},

		{
			name: "runtime lost a running container", pod: "app:x", seen: "sandbox", want: "start:x#3",
			past: &corev1.PodStatus{ContainerStatuses: []*corev1.ContainerStatus{{
				Name: "x", ContainerId: "r://1", RestartCount: 2, State: &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}}},
		},
		{
			name: "runtime lost everything, never", pod: "policy=Never app:x", seen: "", want: "done",
			past: &corev1.PodStatus{ContainerStatuses: []*corev1.ContainerStatus{{
				Name: "x", ContainerId: "r://1", State: &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}}},
		},
		{
			name: "new sandbox, succeeded stays", pod: "policy=OnFailure app:x app:y", seen: "sandbox", want: "start:y#0",
			past: &corev1.PodStatus{ContainerStatuses: []*corev1.ContainerStatus{{
				Name: "x", ContainerId: "r://1", State: &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
			}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Pod: parsePod(tt.pod), Seen: parseSeen(tt.seen), Past: tt.past, Busy: map[string]bool{}, Restart: map[string]bool{tt.restart: true}}
			if tt.busy != "" {
				in.Busy[tt.busy] = true
			}
			if got := Compute(in).text(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestContainerRestartRules(t *testing.T) {
	p := parsePod("policy=Never app:x")
	p.Spec.Containers[0].RestartPolicyRules = []*corev1.ContainerRestartRule{{
		Action: "Restart", ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{42}},
	}}
	if got := Compute(Input{Pod: p, Seen: parseSeen("sandbox x#0=exit:42")}).text(); got != "start:x#1" {
		t.Errorf("exit 42: %q", got)
	}
	if got := Compute(Input{Pod: p, Seen: parseSeen("sandbox x#0=exit:41")}).text(); got != "done" {
		t.Errorf("exit 41: %q", got)
	}
}

// status reads container statuses: "x=running y=exit:1 z=waiting w=crash:1" (waiting after a run that ended so).
// number reads a number of a script; nothing is 0.
func number(text string) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err) // the script is wrong
	}
	return n
}

func parseStatus(pod *corev1.Pod, words string) *corev1.PodStatus {
	status := &corev1.PodStatus{}
	for _, w := range strings.Fields(words) {
		name, state, _ := strings.Cut(w, "=")
		state, code, _ := strings.Cut(state, ":")
		s := &corev1.ContainerStatus{Name: name, State: &corev1.ContainerState{}}
		ended := &corev1.ContainerStateTerminated{}
		ended.ExitCode = int32(number(code))
		switch state {
		case "running":
			s.State.Running = &corev1.ContainerStateRunning{}
		case "exit":
			s.State.Terminated = ended
		case "waiting":
			s.State.Waiting = &corev1.ContainerStateWaiting{}
		case "crash":
			s.State.Waiting = &corev1.ContainerStateWaiting{}
			s.LastState = &corev1.ContainerState{Terminated: ended}
		}
		isInit := slices.ContainsFunc(pod.GetSpec().GetInitContainers(), func(c *corev1.Container) bool { return c.GetName() == name })
		if isInit {
			status.InitContainerStatuses = append(status.InitContainerStatuses, s)
		} else {
			status.ContainerStatuses = append(status.ContainerStatuses, s)
		}
	}
	return status
}

func TestPhase(t *testing.T) {
	for _, tt := range []struct {
		pod, status string
		final       bool
		want        string
	}{
		{pod: "app:x", status: "x=waiting", want: Pending},
		{pod: "app:x", status: "x=none", want: Pending},
		{pod: "app:x", status: "", want: Pending},
		{pod: "app:x", status: "x=running", want: Running},
		{pod: "app:x app:y", status: "x=running y=waiting", want: Pending},
		{pod: "app:x app:y", status: "x=running y=crash:1", want: Running},
		{pod: "app:x app:y", status: "x=running y=none", want: Pending},
		{pod: "app:x", status: "x=crash:1", want: Running},
		{pod: "app:x", status: "x=exit:0", want: Running},
		{pod: "app:x", status: "x=exit:0", final: true, want: Succeeded},
		{pod: "app:x app:y", status: "x=exit:0 y=exit:143", final: true, want: Failed},
		{pod: "policy=Never app:x", status: "x=exit:0", want: Succeeded},
		{pod: "policy=Never app:x", status: "x=exit:1", want: Failed},
		{pod: "policy=Never app:x app:y", status: "x=exit:1 y=running", want: Running},
		{pod: "policy=OnFailure app:x", status: "x=exit:1", want: Running},
		{pod: "policy=OnFailure app:x", status: "x=exit:0", want: Succeeded},
		{pod: "policy=OnFailure app:x app:y", status: "x=exit:0 y=exit:1", want: Running},
		{pod: "init:a app:x", status: "a=running x=waiting", want: Pending},
		{pod: "init:a app:x", status: "a=exit:0 x=waiting", want: Pending},
		{pod: "init:a app:x", status: "a=exit:0 x=running", want: Running},
		{pod: "init:a app:x", status: "a=crash:1 x=waiting", want: Pending},
		{pod: "init:a app:x", status: "x=running", want: Pending},
		{pod: "policy=Never init:a app:x", status: "a=exit:1 x=waiting", want: Failed},
		{pod: "init:a app:x", status: "a=exit:1 x=waiting", final: true, want: Failed},
		{pod: "sidecar:s app:x", status: "s=running x=waiting", want: Pending},
		{pod: "sidecar:s app:x", status: "s=waiting x=none", want: Pending},
		{pod: "sidecar:s app:x", status: "s=running x=running", want: Running},
		{pod: "policy=Never sidecar:s app:x", status: "s=running x=exit:0", want: Running},
		{pod: "policy=Never sidecar:s app:x", status: "s=exit:0 x=exit:0", want: Succeeded},
		{pod: "policy=Never sidecar:s app:x", status: "s=exit:137 x=exit:0", want: Succeeded},
	} {
		t.Run(tt.pod+"/"+tt.status, func(t *testing.T) {
			p := parsePod(tt.pod)
			if got := Phase(p, parseStatus(p, tt.status), nil, tt.final); got != tt.want {
				t.Errorf("final=%v: got %s, want %s", tt.final, got, tt.want)
			}
		})
	}
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestStatusOfARestartedContainer(t *testing.T) {
	p := parsePod("app:x")
	in := StatusInput{Input: Input{Pod: p, Seen: parseSeen("sandbox x#1=exit:3 x#2=running")}, RuntimeName: "r", HostIPs: []string{"192.0.2.1"}, Now: now}
	got := Status(in)
	s := got.GetContainerStatuses()[0]
	if s.GetRestartCount() != 2 || s.GetContainerId() != "r://x#2" || s.GetLastState().GetTerminated().GetExitCode() != 3 || !s.GetReady() {
		t.Errorf("container: %v", s)
	}
	if got.GetPhase() != Running || got.GetPodIp() != "10.0.0.2" || got.GetHostIp() != "192.0.2.1" {
		t.Errorf("status: %v", got)
	}
	want := map[string]string{"PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "True", "ContainersReady": "True", "PodScheduled": "True"}
	for _, c := range got.GetConditions() {
		if want[c.GetType()] != c.GetStatus() {
			t.Errorf("condition %v", c)
		}
		delete(want, c.GetType())
	}
	if len(want) > 0 {
		t.Errorf("missing conditions %v", want)
	}
}

func TestStatusInBackoff(t *testing.T) {
	p := parsePod("app:x")
	got := Status(StatusInput{
		Input:   Input{Pod: p, Seen: parseSeen("sandbox x#1=exit:3")},
		Waiting: map[string]Waiting{"x": {"CrashLoopBackOff", "back-off 10s"}}, Now: now,
	})
	s := got.GetContainerStatuses()[0]
	if s.GetState().GetWaiting().GetReason() != "CrashLoopBackOff" || s.GetLastState().GetTerminated().GetExitCode() != 3 || s.GetRestartCount() != 1 {
		t.Errorf("container: %v", s)
	}
	if got.GetPhase() != Running {
		t.Errorf("phase %s", got.GetPhase())
	}
}

func TestTerminalPhaseStays(t *testing.T) {
	p := parsePod("app:x")
	past := &corev1.PodStatus{Phase: Failed, Reason: "Evicted", Message: "why"}
	got := Status(StatusInput{Input: Input{Pod: p, Seen: parseSeen("sandbox x#0=running"), Past: past}, Now: now})
	if got.GetPhase() != Failed || got.GetReason() != "Evicted" || got.GetMessage() != "why" {
		t.Errorf("%s %s %s", got.GetPhase(), got.GetReason(), got.GetMessage())
	}
}

func TestOthersConditionsAndTransitionsStay(t *testing.T) {
	p := parsePod("app:x")
	early := timestamppb.New(now.Add(-time.Hour))
	past := &corev1.PodStatus{Conditions: []*corev1.PodCondition{
		{Type: "PodScheduled", Status: "True", LastTransitionTime: early, Message: "by the scheduler"},
		{Type: "Ready", Status: "False", LastTransitionTime: early},
		{Type: "Initialized", Status: "True", LastTransitionTime: early},
		{Type: "example.com/own", Status: "True"},
	}}
	got := Status(StatusInput{Input: Input{Pod: p, Seen: parseSeen("sandbox x#0=running"), Past: past}, Now: now})
	at := map[string]time.Time{}
	for _, c := range got.GetConditions() {
		at[c.GetType()] = c.GetLastTransitionTime().AsTime()
		if c.GetType() == "PodScheduled" && c.GetMessage() != "by the scheduler" {
			t.Errorf("PodScheduled: %v", c)
		}
	}
	if !at["Ready"].Equal(now) || !at["Initialized"].Equal(early.AsTime()) {
		t.Errorf("transitions %v", at)
	}
	if _, ok := at["example.com/own"]; !ok {
		t.Error("a foreign condition is gone")
	}
}

func TestReadinessGate(t *testing.T) {
	p := parsePod("app:x")
	p.Spec.ReadinessGates = []*corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	in := StatusInput{Input: Input{Pod: p, Seen: parseSeen("sandbox x#0=running"), Past: &corev1.PodStatus{}}, Now: now}
	readiness := func() string {
		for _, c := range Status(in).GetConditions() {
			if c.GetType() == "Ready" {
				return c.GetStatus() + " " + c.GetReason()
			}
		}
		return ""
	}
	if got := readiness(); got != "False ReadinessGatesNotReady" {
		t.Errorf("without the condition: %s", got)
	}
	in.Past.Conditions = []*corev1.PodCondition{{Type: "example.com/gate", Status: "True"}}
	if got := readiness(); got != "True " {
		t.Errorf("with the condition: %s", got)
	}
}

func TestBackoff(t *testing.T) {
	var b Backoff
	if until, _ := b.Wait("k", now); !until.IsZero() {
		t.Errorf("the first restart waits until %s", until)
	}
	at := now
	for _, seconds := range []int{10, 20, 40, 80, 160, 300, 300} {
		want := time.Duration(seconds) * time.Second
		b.Next("k", at, at)
		until, delay := b.Wait("k", at)
		if delay != want || until.Sub(at) != want {
			t.Fatalf("delay %s, want %s", delay, want)
		}
		at = until
	}
	if until, _ := b.Wait("k", at.Add(backoffReset)); !until.IsZero() {
		t.Error("a container that ran for long still waits")
	}
	b.Next("k", at.Add(backoffReset), at.Add(backoffReset))
	if _, delay := b.Wait("k", at.Add(backoffReset)); delay != InitialBackoff {
		t.Errorf("after a long run the delay is %s", delay)
	}
	b.Forget("k")
	if until, _ := b.WaitSinceUpdate("k"); !until.IsZero() {
		t.Error("a forgotten key waits")
	}
}

// TestComputeConverges plays a runtime that does what Compute says, with containers that end as they please: no two
// runs of a container at a time, attempts only grow, app containers only after all init containers succeeded, and a
// pod whose containers all succeed in the end comes to rest.
func TestComputeConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := "policy=" + rapid.SampledFrom([]string{"Always", "OnFailure", "Never"}).Draw(t, "policy")
		inits, apps := rapid.IntRange(0, 3).Draw(t, "inits"), rapid.IntRange(1, 3).Draw(t, "apps")
		for i := range inits {
			words += fmt.Sprintf(" %s:i%d", rapid.SampledFrom([]string{"init", "sidecar"}).Draw(t, "kind"), i)
		}
		for i := range apps {
			words += fmt.Sprintf(" app:a%d", i)
		}
		pod := parsePod(words)
		var seen *runtime.Pod
		var past *corev1.PodStatus
		highest := map[string]int{}
		failures := rapid.IntRange(0, 6).Draw(t, "failures")
		for range 60 {
			actions := Compute(Input{Pod: pod, Seen: seen, Past: past})
			if actions.RemoveSandbox {
				seen = nil
			}
			if actions.CreateSandbox {
				seen = &runtime.Pod{Sandbox: &runtime.Sandbox{Ready: true, IPs: []string{"10.0.0.2"}}}
			}
			if actions.Done {
				if actions.Start != nil || actions.CreateSandbox {
					t.Fatalf("done and yet %s", actions.text())
				}
				return
			}
			for _, s := range actions.Start {
				name := s.Container.GetName()
				if latest := Latest(seen, name); latest != nil && latest.State == runtime.StateRunning {
					t.Fatalf("%s is started while it runs", name)
				}
				if last, ok := highest[name]; ok && s.Attempt <= last {
					t.Fatalf("%s#%d is started after #%d", name, s.Attempt, last)
				}
				highest[name] = s.Attempt
				if !s.Init {
					for _, c := range pod.GetSpec().GetInitContainers() {
						i := Latest(seen, c.GetName())
						if !IsSidecar(c) && (i == nil || i.State != runtime.StateExited || i.ExitCode != 0) && s.Attempt == 0 && past.GetPhase() == Pending {
							t.Fatalf("%s is started before init container %s succeeded", name, c.GetName())
						}
					}
				}
				seen.Containers = append(seen.Containers, &runtime.Container{
					ID: fmt.Sprintf("%s#%d", name, s.Attempt), Name: name, Attempt: s.Attempt, SpecHash: Hash(s.Container), State: runtime.StateRunning,
				})
			}
			for _, r := range actions.Remove {
				seen.Containers = slices.DeleteFunc(seen.Containers, func(c *runtime.Container) bool { return c == r })
			}
			past = Status(StatusInput{Input: Input{Pod: pod, Seen: seen, Past: past}, Now: now})
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				if failures > 0 && seen.Sandbox != nil {
					failures--
					seen.Sandbox.Ready = false
				}
			default:
				for _, c := range seen.Containers {
					if c.State == runtime.StateRunning && rapid.Bool().Draw(t, "ends") {
						c.State = runtime.StateExited
						if failures > 0 && rapid.Bool().Draw(t, "fails") {
							failures--
							c.ExitCode = 1
						}
					}
				}
			}
		}
		if p := RestartPolicy(pod, pod.GetSpec().GetContainers()[0]); p != "Always" {
			t.Fatalf("a pod with policy %s has not come to its end", p)
		}
	})
}
