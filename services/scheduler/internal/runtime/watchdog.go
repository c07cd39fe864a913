package runtime

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"trireme.dev/kit/loop"
	"trireme.dev/kit/telemetry"
	"trireme.dev/services/scheduler/framework"
)

// blockedAfter is when a plugin that should be quick is reported, and how often that is looked at.
const blockedAfter = 10 * time.Second

// site is a plugin at a point.
type site struct{ point, plugin string }

// running is what the cycle does, for who watches it.
type running struct {
	site atomic.Pointer[site]
	pod  atomic.Pointer[framework.PodInfo]
	// pods counts those that were begun.
	pods atomic.Int64

	preFilter, filter, postFilter, preScore, score, reserve, permit, podGroupPostFilter []*site
}

// sites makes the sites of all plugins that a cycle calls.
func (f *Framework) sites() {
	r := &f.running
	r.preFilter, r.filter, r.postFilter = sitesOf(PreFilter, f.preFilter), sitesOf(Filter, f.filter), sitesOf(PostFilter, f.postFilter)
	r.preScore, r.score = sitesOf(PreScore, f.preScore), sitesOf(Score, f.score)
	r.reserve, r.permit = sitesOf(Reserve, f.reserve), sitesOf(Permit, f.permit)
	r.podGroupPostFilter = sitesOf(PodGroupPostFilter, f.podGroupPostFilter)
}

// Begin notes that a pod's attempt begins. It is called by the cycle.
func (f *Framework) Begin(pod *framework.PodInfo) {
	f.running.pod.Store(pod)
	f.running.pods.Add(1)
}

// End notes that the attempt is over.
func (f *Framework) End() { f.running.site.Store(nil) }

// Running says which plugin the cycle is in; empty where it is in none.
func (f *Framework) Running() (point, plugin string) {
	if s := f.running.site.Load(); s != nil {
		return s.point, s.plugin
	}
	return "", ""
}

// sitesOf makes the sites of the plugins at a point.
func sitesOf[P framework.Plugin](point string, plugins []P) []*site {
	out := make([]*site, len(plugins))
	for i, p := range plugins {
		out[i] = &site{point, p.Name()}
	}
	return out
}

// Watch reports plugins that block the cycle until ctx ends. They cannot be stopped; the report says whom to ask.
func (f *Framework) Watch(ctx context.Context, logger *slog.Logger) error {
	var (
		last   *site
		pods   int64
		since  time.Time
		period = blockedAfter / 2
		said   bool
	)
	return loop.Every(ctx, loop.Config{Name: "plugin watchdog", Period: period}, func(context.Context) error {
		s, n := f.running.site.Load(), f.running.pods.Load()
		if s == nil || s != last || n != pods {
			last, pods, since, said = s, n, time.Now(), false
			return nil
		}
		took := time.Since(since)
		if said || took < blockedAfter {
			return nil
		}
		said = true
		pod := f.running.pod.Load()
		logger.Warn("plugin blocks the scheduler", slog.String(telemetry.KeyPlugin, s.plugin), slog.String(telemetry.KeyPhase, s.point),
			slog.String(telemetry.KeyPod, pod.Name()), slog.Duration(telemetry.KeyDuration, took))
		f.Event(pod.Pod, "Warning", "PluginBlocks", s.point+" of plugin "+s.plugin+" blocks the scheduler at this pod")
		return nil
	})
}
