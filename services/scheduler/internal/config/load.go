package config

import (
	"fmt"
	"reflect"
	"time"

	"trireme.dev/client/manifest"
	"trireme.dev/services/scheduler/framework"
)

// Load reads a file, whose name is for messages. plugins are all that there are, in the order of the default profile.
// The error is of type manifest.Errors: everything wrong, each with file, line and path. defaultName is the scheduler
// name of a single profile that gives none.
func Load(name string, data []byte, plugins []Plugin, defaultName string) (*Configuration, error) {
	d := &decoder{file: name, lines: map[string]int{}}
	if root := d.parse(data); root != nil {
		var f file
		d.decode(root, "", reflect.ValueOf(&f).Elem())
		out := d.configuration(&f, plugins, defaultName)
		if len(d.errs) == 0 {
			return out, nil
		}
	}
	return nil, d.errs
}

func (d *decoder) configuration(f *file, plugins []Plugin, defaultName string) *Configuration {
	d.version(f)
	out := &Configuration{Parallelism: f.Parallelism, LeaderElection: LeaderElection{
		LeaderElect: f.LeaderElection.LeaderElect, LeaseDuration: f.LeaderElection.LeaseDuration,
		RenewDeadline: f.LeaderElection.RenewDeadline, RetryPeriod: f.LeaderElection.RetryPeriod,
		ResourceName: f.LeaderElection.ResourceName, ResourceNamespace: f.LeaderElection.ResourceNamespace,
	}}
	if f.Parallelism != nil && *f.Parallelism < 1 {
		d.fail("parallelism", "is %d, want at least 1", *f.Parallelism)
	}
	d.percentage("percentageOfNodesToScore", f.PercentageOfNodesToScore)
	d.leaderElection(&f.LeaderElection)
	out.PodInitialBackoff = d.seconds("podInitialBackoffSeconds", f.PodInitialBackoffSeconds)
	out.PodMaxBackoff = d.seconds("podMaxBackoffSeconds", f.PodMaxBackoffSeconds)
	initial, most := or(f.PodInitialBackoffSeconds, 1), or(f.PodMaxBackoffSeconds, 10)
	if most > 0 && most < initial {
		at := "podMaxBackoffSeconds"
		if f.PodMaxBackoffSeconds == nil {
			at = "podInitialBackoffSeconds"
		}
		d.fail(at, "podMaxBackoffSeconds, %d, is less than podInitialBackoffSeconds, %d", most, initial)
	}
	if f.Extenders != nil && len(f.Extenders.node.Content) > 0 {
		d.fail("extenders", "Trireme calls no extenders: a webhook for each pod and node is slower than all else together; make it a "+
			"plugin, which is compiled in (docs/checklists/add-a-scheduler-plugin.md)")
	}
	d.notices(f, out)

	r := resolver{plugins: plugins, fail: d.fail, decode: d.args, notice: func(path, why string) { d.notice(out, path, why) }}
	list := f.Profiles
	if len(list) == 0 {
		list = []profileFile{{}}
	}
	first := map[string]int{}
	for i := range list {
		r.at = fmt.Sprintf("profiles[%d]", i)
		name := defaultName
		switch given := list[i].SchedulerName; {
		case given != nil && *given != "":
			name = *given
		case len(list) > 1:
			d.fail(r.at+".schedulerName", "missing; only a single profile has a default name, %s", defaultName)
			continue
		}
		if before, twice := first[name]; twice {
			d.fail(r.at+".schedulerName", "profiles[%d] has the name %s already", before, name)
		} else {
			first[name] = i
		}
		d.percentage(r.at+".percentageOfNodesToScore", list[i].PercentageOfNodesToScore)
		percentage := or(list[i].PercentageOfNodesToScore, or(f.PercentageOfNodesToScore, 0))
		out.Profiles = append(out.Profiles, r.profile(name, percentage, &list[i]))
	}
	d.oneOrder(out.Profiles)
	return out
}

// version checks what the file says that it is.
func (d *decoder) version(f *file) {
	switch {
	case f.APIVersion == APIVersion && f.Kind == Kind, f.APIVersion == kubernetesAPIVersion && f.Kind == kubernetesKind:
	case f.APIVersion == APIVersion:
		d.fail("kind", "is %q, want %s", f.Kind, Kind)
	case f.APIVersion == kubernetesAPIVersion:
		d.fail("kind", "is %q, want %s", f.Kind, kubernetesKind)
	default:
		d.fail("apiVersion", "is %q, want %s (kind %s) or %s (kind %s)", f.APIVersion, APIVersion, Kind, kubernetesAPIVersion, kubernetesKind)
	}
}

func (d *decoder) percentage(path string, p *int32) {
	if p != nil && (*p < 0 || *p > 100) {
		d.fail(path, "is %d, want 0 to 100", *p)
	}
}

func (d *decoder) seconds(path string, s *int64) *time.Duration {
	if s == nil {
		return nil
	}
	const most = 24 * 60 * 60
	if *s < 0 || *s > most {
		d.fail(path, "is %d, want 0 to %d", *s, most)
		return nil
	}
	out := time.Duration(*s) * time.Second
	return &out
}

func (d *decoder) leaderElection(l *leaderElection) {
	const at = "leaderElection."
	lease, deadline, retry := or(l.LeaseDuration, 15*time.Second), or(l.RenewDeadline, 10*time.Second), or(l.RetryPeriod, 2*time.Second)
	switch {
	case lease <= 0:
		d.fail(at+"leaseDuration", "is %s, want more than 0", lease)
	case deadline <= 0:
		d.fail(at+"renewDeadline", "is %s, want more than 0", deadline)
	case retry <= 0:
		d.fail(at+"retryPeriod", "is %s, want more than 0", retry)
	case lease <= deadline:
		d.fail(at+"leaseDuration", "leaseDuration, %s, must be longer than renewDeadline, %s", lease, deadline)
	case deadline <= retry*12/10:
		d.fail(at+"renewDeadline", "renewDeadline, %s, must be longer than retryPeriod, %s, by a fifth", deadline, retry)
	}
	if l.ResourceLock != nil && *l.ResourceLock != "leases" {
		d.fail(at+"resourceLock", "is %q, want leases", *l.ResourceLock)
	}
}

// notices collects what Kubernetes' scheduler would act on and this one does otherwise.
func (d *decoder) notices(f *file, out *Configuration) {
	say := func(set bool, path, why string) {
		if set {
			d.notice(out, path, why)
		}
	}
	c := f.ClientConnection
	say(c.Kubeconfig != nil && *c.Kubeconfig != "", "clientConnection.kubeconfig", "the gateway is named by --apiserver")
	say(c.AcceptContentTypes != nil && *c.AcceptContentTypes != "", "clientConnection.acceptContentTypes", "the gateway speaks protobuf only")
	say(c.ContentType != nil && *c.ContentType != "", "clientConnection.contentType", "the gateway speaks protobuf only")
	say(c.QPS != nil, "clientConnection.qps", "the scheduler holds nothing back from the gateway")
	say(c.Burst != nil, "clientConnection.burst", "the scheduler holds nothing back from the gateway")
	say(or(f.EnableProfiling, false), "enableProfiling", "there is no profiling server")
	say(or(f.EnableContentionProfiling, false), "enableContentionProfiling", "there is no profiling server")
	say(or(f.DelayCacheUntilActive, false), "delayCacheUntilActive", "a standby always keeps its cache warm")
}

func (d *decoder) notice(out *Configuration, path, why string) {
	e := &manifest.Error{File: d.file, Line: d.line(path), Path: path, Message: "has no effect: " + why}
	out.Notices = append(out.Notices, e.Error())
}

// oneOrder holds all profiles to one order of the queue, which they share.
func (d *decoder) oneOrder(profiles []Profile) {
	for i, p := range profiles {
		sorts := func(p Profile) Enabled {
			for _, e := range p.Plugins {
				if names := p.Points[framework.PointQueueSort]; len(names) == 1 && names[0] == e.Name {
					return e
				}
			}
			return Enabled{}
		}
		mine, first := sorts(p), sorts(profiles[0])
		if mine.Name != first.Name || !reflect.DeepEqual(mine.Args, first.Args) {
			d.fail(fmt.Sprintf("profiles[%d]", i), "sorts the queue by %s, and profile %s by %s: all profiles share one queue", mine.Name,
				profiles[0].SchedulerName, first.Name)
		}
	}
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
