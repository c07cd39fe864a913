// Package runtime runs the plugins of a profile: at each extension point in the order in which they are listed, with the
// contract that package framework states. It stands between the cycle, which decides what to run, and the plugins; it
// knows neither queue nor cache.
package runtime

import (
	"fmt"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/nominate"
	"trireme.dev/services/scheduler/internal/recording"
)

// Names of extension points, as Kubernetes' metrics have them.
const (
	PreFilter    = "PreFilter"
	Filter       = "Filter"
	PostFilter   = "PostFilter"
	PreScore     = "PreScore"
	Score        = "Score"
	Reserve      = "Reserve"
	Permit       = "Permit"
	WaitOnPermit = "WaitOnPermit"
	PreBind      = "PreBind"
	Bind         = "Bind"
	PostBind     = "PostBind"

	PodGroupPostFilter = "PodGroupPostFilter"
)

// Deps are what plugins reach through their Handle. What is nil does nothing, or is nothing.
type Deps struct {
	Binder    framework.Binder
	Evictor   framework.Evictor
	Gateway   grpc.ClientConnInterface
	Nominator *nominate.Nominator
	Event     func(object client.Object, eventType, reason, message string)
	// Objects has a framework.Lister for each kind that the scheduler watches.
	Objects map[string]any
	// Shared is what profiles of one scheduler have in common; nil where there is one.
	Shared *Shared
	// Steps of the scheduler.
	Steps *recording.Steps
}

// Shared are the pods of all profiles that wait at Permit or are being bound: a plugin of one profile may have to do with
// those of another.
type Shared struct {
	waiting waitingPods
	binding bindings
}

// NewShared returns one without pods.
func NewShared() *Shared {
	s := &Shared{}
	s.waiting.pods = make(map[string]*waitingPod)
	return s
}

// Framework is a profile, built and ready. It implements framework.Handle. Its Run methods are called by one cycle at
// a time, those from WaitOnPermit on by any number of bindings.
type Framework struct {
	deps     Deps
	name     string
	percent  int32
	snapshot *framework.Snapshot
	waiting  *waitingPods
	binding  *bindings
	running  running
	activate func([]*framework.PodInfo)

	sort               framework.QueueSortPlugin
	preEnqueue         []framework.PreEnqueuePlugin
	preEnqueueGroup    []framework.PreEnqueueGroupPlugin
	preFilter          []framework.PreFilterPlugin
	filter             []framework.FilterPlugin
	postFilter         []framework.PostFilterPlugin
	preScore           []framework.PreScorePlugin
	score              []weighted
	reserve            []framework.ReservePlugin
	permit             []framework.PermitPlugin
	preBind            []framework.PreBindPlugin
	bind               []framework.BindPlugin
	postBind           []framework.PostBindPlugin
	placementGenerate  framework.PlacementGeneratePlugin
	placementScore     []weightedPlacement
	podGroupPostFilter []framework.PodGroupPostFilterPlugin
	events             map[string][]framework.EventHint
	signers            []framework.SignPlugin
	epochs             []framework.SignEpochPlugin
	unsignable         string  // a plugin for whose sake no pod has a signature
	scores             []int64 // reused from plugin to plugin
}

type weighted struct {
	framework.ScorePlugin
	weight int64
}

type weightedPlacement struct {
	framework.PlacementScorePlugin
	weight int64
}

// New builds the plugins of a profile. All that is wrong with it is said at once.
func New(profile framework.Profile, deps Deps) (*Framework, error) {
	if deps.Nominator == nil {
		deps.Nominator = nominate.New()
	}
	if deps.Shared == nil {
		deps.Shared = NewShared()
	}
	f := &Framework{
		waiting: &deps.Shared.waiting, binding: &deps.Shared.binding,
		deps: deps, name: profile.SchedulerName, percent: profile.PercentageOfNodesToScore,
		snapshot: &framework.Snapshot{}, events: make(map[string][]framework.EventHint),
	}
	if err := f.build(profile); err != nil {
		return nil, fmt.Errorf("profile %s: %w", profile.SchedulerName, err)
	}
	return f, nil
}

// Events that plugins registered, by plugin.
func (f *Framework) Events() map[string][]framework.EventHint { return f.events }

// SetSnapshot says which snapshot the plugins see from now on.
func (f *Framework) SetSnapshot(s *framework.Snapshot) { f.snapshot = s }

// OnActivate says who has pods tried at once. It is called before anything runs.
func (f *Framework) OnActivate(activate func([]*framework.PodInfo)) { f.activate = activate }

// Nominator of the profile.
func (f *Framework) Nominator() *nominate.Nominator { return f.deps.Nominator }

// PercentageOfNodesToScore is the profile's.
func (f *Framework) PercentageOfNodesToScore() int32 { return f.percent }

// Profile implements framework.Handle.
func (f *Framework) Profile() string { return f.name }

// Snapshot implements framework.Handle.
func (f *Framework) Snapshot() *framework.Snapshot { return f.snapshot }

// Binder implements framework.Handle.
func (f *Framework) Binder() framework.Binder { return f.deps.Binder }

// Gateway implements framework.Handle.
func (f *Framework) Gateway() grpc.ClientConnInterface { return f.deps.Gateway }

// Event implements framework.Handle.
func (f *Framework) Event(object client.Object, eventType, reason, message string) {
	if f.deps.Event != nil {
		f.deps.Event(object, eventType, reason, message)
	}
}

// Objects implements framework.Handle.
func (f *Framework) Objects(kind string) any { return f.deps.Objects[kind] }

// Nominated implements framework.Handle.
func (f *Framework) Nominated(node string) []*framework.PodInfo { return f.deps.Nominator.On(node) }

// NominatedNode implements framework.Handle.
func (f *Framework) NominatedNode(uid string) string { return f.deps.Nominator.Node(uid) }

// Nominate implements framework.Handle.
func (f *Framework) Nominate(pod *framework.PodInfo, node string) {
	f.deps.Nominator.Nominate(pod, node)
}

// Activate implements framework.Handle.
func (f *Framework) Activate(pods ...*framework.PodInfo) {
	if f.activate != nil {
		f.activate(pods)
	}
}

// Beside implements framework.Handle.
func (f *Framework) Beside(pod *framework.PodInfo, work func() error, then func(error)) {
	f.deps.Steps.Beside(func(run func()) { go run() }, pod.UID(),
		func() *framework.Status { return framework.AsStatus(work()) },
		func(st *framework.Status) { then(st.Err()) })
}

// Less orders the queue.
func (f *Framework) Less(a, b *framework.Queued) bool { return f.sort.Less(a, b) }

// RunPreEnqueue stops at the first plugin that holds the pod back.
func (f *Framework) RunPreEnqueue(pod *framework.PodInfo) *framework.Status {
	for _, p := range f.preEnqueue {
		if st := p.PreEnqueue(pod); !st.IsSuccess() {
			return st.WithPlugin(p.Name())
		}
	}
	return nil
}

// RunPreEnqueueGroup stops at the first plugin that holds the group back.
func (f *Framework) RunPreEnqueueGroup(group *framework.Queued) *framework.Status {
	for _, p := range f.preEnqueueGroup {
		if st := p.PreEnqueueGroup(group); !st.IsSuccess() {
			return st.WithPlugin(p.Name())
		}
	}
	return nil
}
