package scheduler

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins"
)

// configured writes a configuration file and has a scheduler read it.
func configured(t *testing.T, text string) func(*Config) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.ConfigFile = file }
}

const packing = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: &one
    preScore: {disabled: [{name: '*'}]}
    score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 3}]}
- schedulerName: packed
  plugins: *one
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
`

// TestProfilesByName has one scheduler spread some pods and pack others, as they ask for.
func TestProfilesByName(t *testing.T) {
	c := newCluster(t)
	c.node("n1", nil)
	c.node("n2", nil)
	c.create(pod("there", func(s *corev1.PodSpec) {
		s.NodeName = proto.String("n1")
		s.Containers[0].Resources.Requests["cpu"] = "2" // enough for the scores, which are rounded, to tell the nodes apart
	}))
	c.schedule(configured(t, packing))
	for name, want := range map[string]string{"packed": "n1", "default-scheduler": "n2"} {
		c.create(pod(name, func(s *corev1.PodSpec) { s.SchedulerName = proto.String(name) }))
		if got := c.awaitBound(name)[name].GetSpec().GetNodeName(); got != want {
			t.Errorf("a pod of %s is on %s, want %s", name, got, want)
		}
	}
}

// TestGroupOfTwoProfiles cannot be placed as a whole, and says why.
func TestGroupOfTwoProfiles(t *testing.T) {
	c := newCluster(t)
	c.node("n1", nil)
	c.schedule(configured(t, packing))
	c.gang("g", 2)
	for _, name := range []string{"packed", "default-scheduler"} {
		p := pod("of-"+name, func(s *corev1.PodSpec) {
			s.SchedulerName = proto.String(name)
			s.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String("g")}
		})
		c.create(p)
	}
	c.awaitEvent("of-packed", "FailedScheduling", "pods of one group name different schedulers")
}

// TestBadConfigurationIsRefusedAtStart names the line, and everything wrong at once.
func TestBadConfigurationIsRefusedAtStart(t *testing.T) {
	cfg := NewConfig()
	cfg.Gateway.Address, cfg.Gateway.InsecureTCP = "passthrough:///unused", true
	configured(t, packing+"  - name: NodeResourceFit\n- schedulerName: packed\n")(&cfg)
	_, err := New(cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`scheduler.yaml:13: profiles[1].pluginConfig[1].name: unknown plugin "NodeResourceFit"`,
		"scheduler.yaml:14: profiles[2].schedulerName: profiles[1] has the name packed already",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestPointsOfPlugins: what the registry says of a plugin is what the plugin does, and no file is the default profile.
func TestPointsOfPlugins(t *testing.T) {
	cfg := NewConfig()
	profiles, err := cfg.configure(slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	known := plugins.Registry()
	if len(profiles) != 1 || len(profiles[0].Plugins) != len(known) {
		t.Fatalf("%d profiles, of %d plugins, want one of %d", len(profiles), len(profiles[0].Plugins), len(known))
	}
	for i, f := range known {
		if len(f.Points) == 0 {
			t.Errorf("plugin %s takes part nowhere", f.Name)
		}
		for _, point := range f.Points {
			if !slices.Contains(profiles[0].Order[point], f.Name) {
				t.Errorf("plugin %s does not run at %s", f.Name, point)
			}
		}
		if slices.Contains(f.Points, framework.PointScore) && profiles[0].Plugins[i].Weight != f.Weight {
			t.Errorf("plugin %s has weight %d, want %d", f.Name, profiles[0].Plugins[i].Weight, f.Weight)
		}
	}
}

// kubernetesDefaults is what kube-scheduler writes with --write-config-to, its plugins' arguments in full.
const kubernetesDefaults = `apiVersion: kubescheduler.config.k8s.io/v1
clientConnection: {acceptContentTypes: "", burst: 100, contentType: application/vnd.kubernetes.protobuf, kubeconfig: "", qps: 50}
enableContentionProfiling: true
enableProfiling: true
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, resourceLock: leases, resourceName: kube-scheduler, resourceNamespace: kube-system, retryPeriod: 2s}
parallelism: 16
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
- pluginConfig:
  - args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: DefaultPreemptionArgs, minCandidateNodesAbsolute: 100, minCandidateNodesPercentage: 10}
    name: DefaultPreemption
  - args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: DynamicResourcesArgs, filterTimeout: 10s}
    name: DynamicResources
  - args: {apiVersion: kubescheduler.config.k8s.io/v1, hardPodAffinityWeight: 1, ignorePreferredTermsOfExistingPods: false, kind: InterPodAffinityArgs}
    name: InterPodAffinity
  - args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeAffinityArgs}
    name: NodeAffinity
  - args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeResourcesBalancedAllocationArgs, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}
    name: NodeResourcesBalancedAllocation
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy: {resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}], type: LeastAllocated}
    name: NodeResourcesFit
  - args: {apiVersion: kubescheduler.config.k8s.io/v1, defaultingType: System, kind: PodTopologySpreadArgs}
    name: PodTopologySpread
  - args: {apiVersion: kubescheduler.config.k8s.io/v1, bindTimeoutSeconds: 600, kind: VolumeBindingArgs}
    name: VolumeBinding
  schedulerName: default-scheduler
`

// TestKubernetesDefaultsLoad: the file loads as it is, and says what no file says.
func TestKubernetesDefaultsLoad(t *testing.T) {
	file, none := NewConfig(), NewConfig()
	configured(t, kubernetesDefaults)(&file)
	logger := slog.New(slog.DiscardHandler)
	loaded, err := file.configure(logger, nil)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := none.configure(logger, nil)
	if err != nil {
		t.Fatal(err)
	}
	for point, names := range plain[0].Order {
		if !slices.Equal(loaded[0].Order[point], names) {
			t.Errorf("at %s the file has %v, no file %v", point, loaded[0].Order[point], names)
		}
	}
	if file.lease.Name != "kube-scheduler" || file.InitialBackoff != none.InitialBackoff || file.MaxBackoff != none.MaxBackoff {
		t.Errorf("the file gives %+v", file)
	}
}

// TestAddedAffinity keeps all pods of a profile where the profile wants them.
func TestAddedAffinity(t *testing.T) {
	c := newCluster(t)
	c.node("n1", nil)
	c.node("n2", nil)
	c.schedule(configured(t, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchFields: [{key: metadata.name, operator: In, values: [n2]}]
`))
	c.create(pod("a", nil))
	if got := c.awaitBound("a")["a"].GetSpec().GetNodeName(); got != "n2" {
		t.Errorf("on %s, want n2", got)
	}
	c.create(pod("b", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"no": "such"} }))
	c.awaitCondition("b", "1 node(s) didn't match scheduler-enforced node affinity")
}
