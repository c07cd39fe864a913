package config_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trireme.dev/client/manifest"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/config"
)

type fitArgs struct {
	IgnoredResources []string         `json:"ignoredResources"`
	ScoringStrategy  *scoringStrategy `json:"scoringStrategy"`
}

type scoringStrategy struct {
	Type      string     `json:"type"`
	Resources []resource `json:"resources"`
}

type resource struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
}

func (a *fitArgs) Validate() error {
	if a.ScoringStrategy.Type != "LeastAllocated" && a.ScoringStrategy.Type != "MostAllocated" {
		return fmt.Errorf("scoringStrategy.type is %q", a.ScoringStrategy.Type)
	}
	return nil
}

type bindingArgs struct {
	BindTimeoutSeconds *int64 `json:"bindTimeoutSeconds"`
}

// known has a few of Kubernetes' plugins, in its order, and one that is not in the default profile.
func known() []config.Plugin {
	const (
		preEnqueue, queueSort, preFilter, filter = framework.PointPreEnqueue, framework.PointQueueSort, framework.PointPreFilter, framework.PointFilter
		postFilter, preScore, score              = framework.PointPostFilter, framework.PointPreScore, framework.PointScore
		reserve, permit, preBind, bind           = framework.PointReserve, framework.PointPermit, framework.PointPreBind, framework.PointBind
		generate, placement                      = framework.PointPlacementGenerate, framework.PointPlacementScore
	)
	at := func(points ...framework.Point) []framework.Point { return points }
	return []config.Plugin{
		{Name: "SchedulingGates", Points: at(preEnqueue)},
		{Name: "PrioritySort", Points: at(queueSort)},
		{Name: "NodeName", Points: at(filter)},
		{Name: "TaintToleration", Points: at(filter, preScore, score), Weight: 3},
		{Name: "NodeAffinity", Points: at(preFilter, filter, preScore, score), Weight: 2},
		{Name: "NodeResourcesFit", Points: at(preFilter, filter, preScore, score, placement), Weight: 1, Args: func() any {
			return &fitArgs{ScoringStrategy: &scoringStrategy{Type: "LeastAllocated", Resources: []resource{{"cpu", 1}, {"memory", 1}}}}
		}},
		{Name: "VolumeBinding", Points: at(preFilter, filter, reserve, preBind), Args: func() any { return &bindingArgs{} }},
		{Name: "DefaultPreemption", Points: at(postFilter)},
		{Name: "DefaultBinder", Points: at(bind)},
		{Name: "GangScheduling", Points: at(preEnqueue, permit)},
		{Name: "TopologyPlacementGenerator", Points: at(generate)},
		{Name: "Coscheduling", Points: at(queueSort, permit, generate), Optional: true},
	}
}

// of is a file with one profile that says this of its plugins.
func of(plugins string) string {
	return "apiVersion: scheduler.trireme.dev/v1\nkind: SchedulerConfiguration\nprofiles:\n- plugins:\n" + indent(plugins, "    ")
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by) + "\n"
}

func load(t *testing.T, text string) *config.Configuration {
	t.Helper()
	c, err := config.Load("sched.yaml", []byte(text), known(), "default-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPrecedence is the order of A.11: what is said of a point, what is said of multiPoint, the defaults.
func TestPrecedence(t *testing.T) {
	const filters, scores = "NodeName TaintToleration:3 NodeAffinity:2 NodeResourcesFit:1 VolumeBinding", "TaintToleration:3 NodeAffinity:2 NodeResourcesFit:1"
	for _, c := range []struct {
		name, plugins string
		want          map[framework.Point]string
	}{
		{"nothing", `{}`, map[framework.Point]string{framework.PointFilter: filters, framework.PointScore: scores, framework.PointPermit: "GangScheduling", framework.PointPlacementScore: "NodeResourcesFit:1"}},
		{"one disabled at a point", "filter: {disabled: [{name: NodeName}]}", map[framework.Point]string{
			framework.PointFilter: "TaintToleration:3 NodeAffinity:2 NodeResourcesFit:1 VolumeBinding", framework.PointScore: scores}},
		{"all disabled at a point", "score: {disabled: [{name: '*'}]}", map[framework.Point]string{framework.PointScore: "", framework.PointFilter: "NodeName TaintToleration NodeAffinity NodeResourcesFit VolumeBinding"}},
		{"all but one", "score: {disabled: [{name: '*'}], enabled: [{name: NodeAffinity, weight: 7}]}", map[framework.Point]string{framework.PointScore: "NodeAffinity:7"}},
		{"another weight", "score: {enabled: [{name: NodeResourcesFit, weight: 5}]}", map[framework.Point]string{
			// Named at the point: it goes first there.
			framework.PointScore: "NodeResourcesFit:5 TaintToleration:3 NodeAffinity:2", framework.PointFilter: "NodeName TaintToleration:3 NodeAffinity:2 NodeResourcesFit:5 VolumeBinding",
			framework.PointPlacementScore: "NodeResourcesFit:5/1"}},
		{"named without weight", "score: {enabled: [{name: TaintToleration}]}", map[framework.Point]string{framework.PointScore: "TaintToleration:1 NodeAffinity:2 NodeResourcesFit:1"}},
		{"order at a point", "filter: {enabled: [{name: NodeResourcesFit}, {name: NodeName}]}", map[framework.Point]string{
			framework.PointFilter: "NodeResourcesFit:1 NodeName TaintToleration:3 NodeAffinity:2 VolumeBinding", framework.PointScore: scores}},
		{"disabled everywhere", "multiPoint: {disabled: [{name: TaintToleration}]}", map[framework.Point]string{
			framework.PointFilter: "NodeName NodeAffinity:2 NodeResourcesFit:1 VolumeBinding", framework.PointScore: "NodeAffinity:2 NodeResourcesFit:1"}},
		{"disabled everywhere but at a point", "multiPoint: {disabled: [{name: TaintToleration}]}\nfilter: {enabled: [{name: TaintToleration}]}", map[framework.Point]string{
			framework.PointFilter: "NodeName NodeAffinity:2 NodeResourcesFit:1 VolumeBinding TaintToleration", framework.PointScore: "NodeAffinity:2 NodeResourcesFit:1"}},
		{"weight everywhere, in its place", "multiPoint: {enabled: [{name: TaintToleration, weight: 9}]}", map[framework.Point]string{
			framework.PointScore: "TaintToleration:9 NodeAffinity:2 NodeResourcesFit:1"}},
		{"weight everywhere and at the point", "multiPoint: {enabled: [{name: TaintToleration, weight: 9}]}\nscore: {enabled: [{name: TaintToleration, weight: 4}]}", map[framework.Point]string{
			framework.PointScore: "TaintToleration:4 NodeAffinity:2 NodeResourcesFit:1"}},
		{"one of one's own everywhere", "multiPoint: {enabled: [{name: Coscheduling}], disabled: [{name: PrioritySort}, {name: TopologyPlacementGenerator}]}", map[framework.Point]string{
			framework.PointQueueSort: "Coscheduling", framework.PointPermit: "GangScheduling Coscheduling", framework.PointPlacementGenerate: "Coscheduling"}},
		{"one of one's own at a point", "permit: {enabled: [{name: Coscheduling}]}", map[framework.Point]string{
			framework.PointPermit: "GangScheduling Coscheduling", framework.PointQueueSort: "PrioritySort"}},
		{"everything disabled, some enabled", "multiPoint: {disabled: [{name: '*'}], enabled: [{name: DefaultBinder}, {name: PrioritySort}, {name: NodeAffinity, weight: 2}]}", map[framework.Point]string{
			framework.PointFilter: "NodeAffinity:2", framework.PointScore: "NodeAffinity:2", framework.PointBind: "DefaultBinder", framework.PointPreEnqueue: ""}},
		{"enabled and disabled at a point", "filter: {enabled: [{name: NodeName}], disabled: [{name: NodeName}]}", map[framework.Point]string{
			framework.PointFilter: "TaintToleration:3 NodeAffinity:2 NodeResourcesFit:1 VolumeBinding NodeName"}},
		{"one that we have not is disabled", "multiPoint: {disabled: [{name: DynamicResources}]}", map[framework.Point]string{framework.PointFilter: filters}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := load(t, of(c.plugins)).Profiles[0]
			for point, want := range c.want {
				var got []string
				for _, name := range p.Points[point] {
					i := slices.IndexFunc(p.Plugins, func(e config.Enabled) bool { return e.Name == name })
					if i < 0 {
						t.Fatalf("%s runs %s, which is not built", point, name)
					}
					e := p.Plugins[i]
					switch {
					case e.Weight != e.PlacementWeight && e.PlacementWeight != 0 && e.Weight != 0 && point == framework.PointPlacementScore:
						name = fmt.Sprintf("%s:%d/%d", name, e.Weight, e.PlacementWeight)
					case e.Weight != 0:
						name = fmt.Sprintf("%s:%d", name, e.Weight)
					}
					got = append(got, name)
				}
				if got := strings.Join(got, " "); got != want {
					t.Errorf("%s:\n got %s\nwant %s", point, got, want)
				}
			}
		})
	}
}

// TestRefused writes files with one thing wrong each; what is said names the line and the path.
func TestRefused(t *testing.T) {
	const head = "apiVersion: scheduler.trireme.dev/v1\nkind: SchedulerConfiguration\n"
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "sched.yaml: the file is empty"},
		{"no YAML", "a: [", "sched.yaml:1: not valid YAML"},
		{"two documents", head + "---\n" + head, "sched.yaml:3: a second document"},
		{"no version", "kind: SchedulerConfiguration", `sched.yaml:1: apiVersion: is "", want`},
		{"old version", "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration", `sched.yaml:1: apiVersion: is "kubescheduler.config.k8s.io/v1beta3", want scheduler.trireme.dev/v1`},
		{"other kind", "apiVersion: kubescheduler.config.k8s.io/v1\nkind: Policy", `sched.yaml:2: kind: is "Policy", want KubeSchedulerConfiguration`},
		{"unknown field", head + "paralelism: 4", "sched.yaml:3: paralelism: unknown field; known are apiVersion, clientConnection,"},
		{"unknown field below", head + "leaderElection:\n  leaderelect: true", "sched.yaml:4: leaderElection.leaderelect: unknown field"},
		{"field twice", head + "parallelism: 4\nparallelism: 5", "sched.yaml:4: parallelism: stands here twice, first on line 3"},
		{"wrong type", head + "parallelism: many", `sched.yaml:3: parallelism: expected an integer of 32 bits, got the string "many"`},
		{"out of range", head + "parallelism: 99999999999", "sched.yaml:3: parallelism: expected an integer of 32 bits"},
		{"no parallelism", head + "parallelism: 0", "sched.yaml:3: parallelism: is 0, want at least 1"},
		{"percentage", head + "percentageOfNodesToScore: 101", "sched.yaml:3: percentageOfNodesToScore: is 101, want 0 to 100"},
		{"negative backoff", head + "podInitialBackoffSeconds: -1", "sched.yaml:3: podInitialBackoffSeconds: is -1"},
		{"backoff upside down", head + "podInitialBackoffSeconds: 20", "sched.yaml:3: podInitialBackoffSeconds: podMaxBackoffSeconds, 10, is less than podInitialBackoffSeconds, 20"},
		{"lease upside down", head + "leaderElection: {leaseDuration: 5s}", "sched.yaml:3: leaderElection.leaseDuration: leaseDuration, 5s, must be longer than renewDeadline, 10s"},
		{"lease of a number", head + "leaderElection: {leaseDuration: 15}", "sched.yaml:3: leaderElection.leaseDuration: expected a duration such as 15s, got the number 15"},
		{"lock", head + "leaderElection: {resourceLock: endpoints}", `leaderElection.resourceLock: is "endpoints", want leases`},
		{"extenders", head + "extenders:\n- urlPrefix: http://localhost", "sched.yaml:3: extenders: Trireme calls no extenders"},
		{"unknown point", of("filters: {}"), "sched.yaml:5: profiles[0].plugins.filters: unknown field"},
		{"point twice", of("filter: {}\nfilter: {}"), "sched.yaml:6: profiles[0].plugins.filter: stands here twice, first on line 5"},
		{"unknown plugin", of("filter:\n  enabled:\n  - name: NodeNmae"), `sched.yaml:7: profiles[0].plugins.filter.enabled[0].name: unknown plugin "NodeNmae"; known are NodeAffinity, NodeName, NodeResourcesFit, TaintToleration, VolumeBinding`},
		{"unknown plugin disabled", of("filter: {disabled: [{name: Nothing}]}"), `profiles[0].plugins.filter.disabled[0].name: unknown plugin "Nothing"`},
		{"nameless plugin", of("filter: {enabled: [{weight: 1}]}"), "profiles[0].plugins.filter.enabled[0].name: missing"},
		{"star enabled", of("filter: {enabled: [{name: '*'}]}"), "profiles[0].plugins.filter.enabled[0].name: * stands for all plugins in disabled only"},
		{"plugin twice at a point", of("filter:\n  enabled:\n  - name: NodeName\n  - name: NodeName"), "sched.yaml:8: profiles[0].plugins.filter.enabled[1].name: plugin NodeName is enabled here twice"},
		{"plugin twice everywhere", of("multiPoint: {enabled: [{name: NodeName}, {name: NodeName}]}"), "profiles[0].plugins.multiPoint.enabled[1].name: plugin NodeName is enabled here twice"},
		{"plugin disabled twice", of("filter: {disabled: [{name: NodeName}, {name: NodeName}]}"), "profiles[0].plugins.filter.disabled[1].name: NodeName is disabled here twice"},
		{"zero weight", of("score:\n  enabled:\n  - name: NodeAffinity\n    weight: 0"), "sched.yaml:8: profiles[0].plugins.score.enabled[0].weight: is 0, want at least 1"},
		{"zero weight everywhere", of("multiPoint: {enabled: [{name: NodeAffinity, weight: 0}]}"), "profiles[0].plugins.multiPoint.enabled[0].weight: is 0"},
		{"plugin at another's point", of("score: {enabled: [{name: NodeName}]}"), "profiles[0].plugins.score.enabled[0].name: plugin NodeName does nothing at score; it takes part at filter"},
		{"two orders", of("multiPoint: {enabled: [{name: Coscheduling}], disabled: [{name: TopologyPlacementGenerator}]}"), "profiles[0].plugins.queueSort: has 2 plugins (PrioritySort, Coscheduling), want exactly one"},
		{"no order", of("queueSort: {disabled: [{name: '*'}]}"), "sched.yaml:5: profiles[0].plugins.queueSort: has 0 plugins, want exactly one"},
		{"two generators", of("placementGenerate: {enabled: [{name: Coscheduling}]}"), "profiles[0].plugins.placementGenerate: has 2 plugins (TopologyPlacementGenerator, Coscheduling), want at most one"},
		{"no binder", of("bind: {disabled: [{name: DefaultBinder}]}"), "profiles[0].plugins.bind: has no plugin"},
		{"two profiles of one name", head + "profiles:\n- schedulerName: a\n- schedulerName: a", "sched.yaml:5: profiles[1].schedulerName: profiles[0] has the name a already"},
		{"two profiles, one nameless", head + "profiles:\n- schedulerName: a\n- percentageOfNodesToScore: 50", "sched.yaml:5: profiles[1].schedulerName: missing; only a single profile has a default name"},
		{"two profiles, two orders", head + "profiles:\n- schedulerName: a\n- schedulerName: b\n  plugins: {queueSort: {disabled: [{name: '*'}], enabled: [{name: Coscheduling}]}}", "sched.yaml:5: profiles[1]: sorts the queue by Coscheduling, and profile a by PrioritySort"},
		{"arguments of nobody", head + "profiles:\n- pluginConfig:\n  - name: Nobody", `sched.yaml:5: profiles[0].pluginConfig[0].name: unknown plugin "Nobody"`},
		{"arguments twice", head + "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n  - name: NodeResourcesFit", "sched.yaml:6: profiles[0].pluginConfig[1].name: plugin NodeResourcesFit is configured twice"},
		{"arguments not taken", head + "profiles:\n- pluginConfig:\n  - name: NodeName\n    args: {a: 1}", "sched.yaml:6: profiles[0].pluginConfig[0].args.a: unknown field; none is known here"},
		{"unknown argument", head + "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy: {typ: MostAllocated}", "sched.yaml:7: profiles[0].pluginConfig[0].args.scoringStrategy.typ: unknown field; known are resources, type"},
		{"argument of a wrong type", head + "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {ignoredResources: cpu}", `profiles[0].pluginConfig[0].args.ignoredResources: expected a list, got the string "cpu"`},
		{"argument that cannot be", head + "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: Random}}", `sched.yaml:6: profiles[0].pluginConfig[0].args: scoringStrategy.type is "Random"`},
		{"arguments of another", head + "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {kind: NodeAffinityArgs}", `profiles[0].pluginConfig[0].args.kind: is "NodeAffinityArgs", want NodeResourcesFitArgs`},
		{"arguments no object", head + "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: [1]", "profiles[0].pluginConfig[0].args: expected an object, got a list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Load("sched.yaml", []byte(c.text), known(), "default-scheduler")
			var all manifest.Errors
			if !errors.As(err, &all) || len(all) != 1 {
				t.Fatalf("got %v, want one error: %s", err, c.want)
			}
			if !strings.HasPrefix(err.Error(), c.want) && !strings.Contains(err.Error(), ": "+c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestAllErrorsAtOnce has three mistakes in a file.
func TestAllErrorsAtOnce(t *testing.T) {
	_, err := config.Load("f", []byte(of("score: {enabled: [{name: Nothing}, {name: NodeAffinity, weight: 0}]}")+"parallelism: 0\n"), known(), "a")
	var all manifest.Errors
	if !errors.As(err, &all) || len(all) != 3 {
		t.Errorf("got %v", err)
	}
}

// TestKubernetesFile loads a file as people keep them for Kubernetes' scheduler.
func TestKubernetesFile(t *testing.T) {
	c := load(t, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 32
leaderElection:
  leaderElect: true
  leaseDuration: 30s
  renewDeadline: 20s
  retryPeriod: 4s
  resourceLock: leases
  resourceName: my-scheduler
  resourceNamespace: kube-system
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
  qps: 100
  burst: 200
percentageOfNodesToScore: 50
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 60
extenders: []
profiles:
- schedulerName: default-scheduler
  percentageOfNodesToScore: null
  plugins:
    score:
      disabled:
      - name: NodeResourcesFit
      enabled:
      - name: NodeResourcesFit
        weight: 10
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      ignoredResources: [example.com/foo]
      scoringStrategy:
        type: MostAllocated
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 60}
  - name: DynamicResources
    args: {kind: DynamicResourcesArgs, filterTimeout: 10s}
  - name: NodeName
    args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeNameArgs}
- schedulerName: no-scoring-scheduler
  percentageOfNodesToScore: 10
  plugins:
    preScore: {disabled: [{name: '*'}]}
    score: {disabled: [{name: '*'}]}
`)
	if *c.Parallelism != 32 || *c.PodInitialBackoff != 2*time.Second || *c.PodMaxBackoff != time.Minute {
		t.Errorf("got %+v", c)
	}
	l := c.LeaderElection
	if !*l.LeaderElect || *l.LeaseDuration != 30*time.Second || *l.RenewDeadline != 20*time.Second || *l.RetryPeriod != 4*time.Second || l.ResourceName != "my-scheduler" {
		t.Errorf("leader election %+v", l)
	}
	if len(c.Profiles) != 2 || c.Profiles[0].PercentageOfNodesToScore != 50 || c.Profiles[1].PercentageOfNodesToScore != 10 {
		t.Fatalf("profiles %+v", c.Profiles)
	}
	if got := c.Profiles[0].Points[framework.PointScore]; !slices.Equal(got, []string{"TaintToleration", "NodeAffinity", "NodeResourcesFit"}) {
		t.Errorf("score %v", got)
	}
	for name, want := range map[string]any{
		"NodeResourcesFit": &fitArgs{IgnoredResources: []string{"example.com/foo"}, ScoringStrategy: &scoringStrategy{
			Type: "MostAllocated", Resources: []resource{{"cpu", 1}, {"memory", 1}},
		}},
		"VolumeBinding": &bindingArgs{BindTimeoutSeconds: new(int64(60))},
	} {
		i := slices.IndexFunc(c.Profiles[0].Plugins, func(e config.Enabled) bool { return e.Name == name })
		if diff := cmp.Diff(want, c.Profiles[0].Plugins[i].Args); diff != "" {
			t.Errorf("arguments of %s (-want +got):\n%s", name, diff)
		}
	}
	if got := c.Profiles[1].Points[framework.PointScore]; len(got) != 0 {
		t.Errorf("no-scoring-scheduler scores by %v", got)
	}
	want := []string{
		"sched.yaml:14: clientConnection.kubeconfig: has no effect: the gateway is named by --apiserver",
		"sched.yaml:15: clientConnection.qps: has no effect: the scheduler holds nothing back from the gateway",
		"sched.yaml:16: clientConnection.burst: has no effect: the scheduler holds nothing back from the gateway",
		"sched.yaml:41: profiles[0].pluginConfig[2].name: has no effect: Trireme has no plugin DynamicResources",
	}
	if diff := cmp.Diff(want, c.Notices); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

// TestDefault is the profile of no file, and a file that says nothing is the same.
func TestDefault(t *testing.T) {
	none := config.Default("default-scheduler", known())
	empty := load(t, `{"apiVersion": "scheduler.trireme.dev/v1", "kind": "SchedulerConfiguration"}`)
	if diff := cmp.Diff(none, *empty); diff != "" {
		t.Errorf("no file and an empty one differ (-none +empty):\n%s", diff)
	}
	for _, e := range none.Profiles[0].Plugins {
		if e.Name == "Coscheduling" {
			t.Error("an optional plugin runs by default")
		}
	}
}

// FuzzLoad holds that no text makes the reader panic, and that what it accepts can run.
func FuzzLoad(f *testing.F) {
	f.Add(of("score: {disabled: [{name: '*'}], enabled: [{name: NodeAffinity, weight: 7}]}"))
	f.Add("apiVersion: scheduler.trireme.dev/v1\nkind: SchedulerConfiguration\nprofiles: [&a {schedulerName: a}, *a]")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := config.Load("f", []byte(text), known(), "default-scheduler")
		if err != nil {
			return
		}
		for _, p := range c.Profiles {
			if p.SchedulerName == "" || len(p.Points[framework.PointQueueSort]) != 1 || len(p.Points[framework.PointBind]) == 0 {
				t.Errorf("accepted a profile that cannot run: %+v", p)
			}
		}
	})
}
