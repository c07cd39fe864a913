package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"trireme.dev/services/scheduler/framework"
)

// resolver works out one profile after the other.
type resolver struct {
	plugins []Plugin
	at      string // path of the profile
	fail    func(path, format string, args ...any)
	decode  func(v *value, plugin string, into any)
	notice  func(path, why string)
}

func (r *resolver) find(name string) *Plugin {
	if i := slices.IndexFunc(r.plugins, func(p Plugin) bool { return p.Name == name }); i >= 0 {
		return &r.plugins[i]
	}
	return nil
}

// chosen is a plugin with the weight that a file gave it, 1 where it gave none.
type chosen struct {
	plugin *Plugin
	weight int64
}

// profile applies what a file says of a profile to the defaults. What it says of a point goes before what it says of
// multiPoint, and that before the defaults.
func (r *resolver) profile(name string, percentage int32, f *profileFile) Profile {
	out := Profile{SchedulerName: name, PercentageOfNodesToScore: percentage, Points: map[framework.Point][]string{}}
	multi := r.multiPoint(&f.Plugins.MultiPoint)
	order := slices.Clone(multi)
	weights := map[framework.Point]map[string]int64{framework.PointScore: {}, framework.PointPlacementScore: {}}
	for _, point := range points {
		list := r.point(point, f.Plugins.at(point), multi)
		out.Points[point] = []string{}
		for _, c := range list {
			out.Points[point] = append(out.Points[point], c.plugin.Name)
			if !slices.ContainsFunc(order, func(o chosen) bool { return o.plugin == c.plugin }) {
				order = append(order, c)
			}
			if weights[point] != nil {
				weights[point][c.plugin.Name] = c.weight
			}
		}
		r.count(point, out.Points[point])
	}
	args := r.pluginConfig(f.PluginConfig)
	for _, c := range order {
		used := slices.ContainsFunc(points, func(p framework.Point) bool { return slices.Contains(out.Points[p], c.plugin.Name) })
		if !used {
			continue
		}
		e := Enabled{
			Name: c.plugin.Name, Args: args[c.plugin.Name],
			Weight:          weights[framework.PointScore][c.plugin.Name],
			PlacementWeight: weights[framework.PointPlacementScore][c.plugin.Name],
		}
		if e.Args == nil && c.plugin.Args != nil {
			e.Args = c.plugin.Args()
		}
		out.Plugins = append(out.Plugins, e)
	}
	return out
}

// multiPoint is the default plugins, without those that the file disables, with those that it enables again in their
// places, and then what else it enables.
func (r *resolver) multiPoint(set *pluginSet) []chosen {
	at := r.at + ".plugins.multiPoint"
	enabled, disabled := r.enabled(at, set.Enabled, ""), r.disabled(at, set.Disabled)
	var out []chosen
	var again []*Plugin
	for i := range r.plugins {
		p := &r.plugins[i]
		if p.Optional || disabled["*"] || disabled[p.Name] {
			continue
		}
		c := chosen{p, p.Weight}
		if j := slices.IndexFunc(enabled, func(e chosen) bool { return e.plugin == p }); j >= 0 {
			c = enabled[j]
			again = append(again, p)
		}
		out = append(out, c)
	}
	for _, e := range enabled {
		if !slices.Contains(again, e.plugin) {
			out = append(out, e)
		}
	}
	return out
}

// point is what runs at a point: first those of multi that the file enables at the point as well, in its order there,
// then the rest of multi that implements the point and is not disabled there, then what else the file enables.
func (r *resolver) point(point framework.Point, set *pluginSet, multi []chosen) []chosen {
	at := r.at + ".plugins." + key(point)
	enabled, disabled := r.enabled(at, set.Enabled, point), r.disabled(at, set.Disabled)
	var rest, overrides, others []chosen
	for _, c := range multi {
		named := slices.ContainsFunc(enabled, func(e chosen) bool { return e.plugin == c.plugin })
		if c.plugin.has(point) && !disabled["*"] && !disabled[c.plugin.Name] && !named {
			rest = append(rest, c)
		}
	}
	for _, e := range enabled {
		general := slices.ContainsFunc(multi, func(c chosen) bool { return c.plugin == e.plugin })
		if general && !disabled["*"] && !disabled[e.plugin.Name] {
			overrides = append(overrides, e)
		} else {
			others = append(others, e)
		}
	}
	return slices.Concat(overrides, rest, others)
}

// enabled checks what a file enables at a point; no point is multiPoint.
func (r *resolver) enabled(at string, list []pluginFile, point framework.Point) []chosen {
	var out []chosen
	for i, f := range list {
		at := fmt.Sprintf("%s.enabled[%d]", at, i)
		p := r.find(f.Name)
		switch {
		case f.Name == "":
			r.fail(at+".name", "missing")
		case f.Name == "*":
			r.fail(at+".name", "* stands for all plugins in disabled only")
		case p == nil:
			r.fail(at+".name", "unknown plugin %q; known are %s", f.Name, r.names(point))
		case point != "" && !p.has(point):
			r.fail(at+".name", "plugin %s does nothing at %s; it takes part at %s", f.Name, key(point), keys(p.Points))
		case slices.ContainsFunc(out, func(c chosen) bool { return c.plugin == p }):
			r.fail(at+".name", "plugin %s is enabled here twice", f.Name)
		default:
			weight := int64(1)
			if f.Weight != nil {
				weight = int64(*f.Weight)
			}
			if weight < 1 {
				r.fail(at+".weight", "is %d, want at least 1; a plugin that is not to count is disabled", weight)
			}
			out = append(out, chosen{p, weight})
		}
	}
	return out
}

func (r *resolver) disabled(at string, list []pluginFile) map[string]bool {
	out := map[string]bool{}
	for i, f := range list {
		at := fmt.Sprintf("%s.disabled[%d]", at, i)
		switch {
		case f.Name == "":
			r.fail(at+".name", "missing")
		case f.Name != "*" && r.find(f.Name) == nil && !slices.Contains(elsewhere, f.Name):
			r.fail(at+".name", "unknown plugin %q; known are %s", f.Name, r.names(""))
		case out[f.Name]:
			r.fail(at+".name", "%s is disabled here twice", f.Name)
		}
		out[f.Name] = true
	}
	return out
}

// count holds a point to how many plugins it may have.
func (r *resolver) count(point framework.Point, names []string) {
	at := r.at + ".plugins." + key(point)
	switch n := len(names); {
	case point == framework.PointQueueSort && n != 1:
		r.fail(at, "has %d plugins%s, want exactly one", n, listed(names))
	case point == framework.PointBind && n == 0:
		r.fail(at, "has no plugin, want at least one: pods would never be bound")
	case point == framework.PointPlacementGenerate && n > 1:
		r.fail(at, "has %d plugins%s, want at most one", n, listed(names))
	}
}

// pluginConfig decodes arguments over the defaults of their plugins.
func (r *resolver) pluginConfig(list []pluginConfig) map[string]any {
	out := map[string]any{}
	for i, f := range list {
		at := fmt.Sprintf("%s.pluginConfig[%d]", r.at, i)
		p := r.find(f.Name)
		switch {
		case f.Name == "":
			r.fail(at+".name", "missing")
		case p == nil && slices.Contains(elsewhere, f.Name):
			r.notice(at+".name", "Trireme has no plugin "+f.Name)
		case p == nil:
			r.fail(at+".name", "unknown plugin %q; known are %s", f.Name, r.names(""))
		case out[f.Name] != nil:
			r.fail(at+".name", "plugin %s is configured twice", f.Name)
		case p.Args == nil && f.Args != nil:
			r.decode(f.Args, f.Name, &struct{}{})
		case p.Args != nil:
			args := p.Args()
			if f.Args != nil {
				r.decode(f.Args, f.Name, args)
			}
			out[f.Name] = args
		}
	}
	return out
}

func (r *resolver) names(point framework.Point) string {
	var out []string
	for _, p := range r.plugins {
		if point == "" || p.has(point) {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func keys(points []framework.Point) string {
	var out []string
	for _, p := range points {
		out = append(out, key(p))
	}
	return strings.Join(out, ", ")
}

func listed(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// args decodes a plugin's arguments into the struct that holds their defaults.
func (d *decoder) args(v *value, plugin string, into any) {
	before := len(d.errs)
	body := *v.node
	// Kubernetes' arguments carry their type, which is known.
	var rest []*yaml.Node
	if body.Kind == yaml.MappingNode {
		rest, body.Content = body.Content, nil
	}
	for i := 0; i+1 < len(rest); i += 2 {
		switch name, given := rest[i].Value, rest[i+1].Value; {
		case name == "apiVersion" && (given == kubernetesAPIVersion || given == APIVersion), name == "kind" && given == plugin+"Args":
		case name == "apiVersion":
			d.failAt(rest[i].Line, v.path+".apiVersion", "is %q, want %s", given, kubernetesAPIVersion)
		case name == "kind":
			d.failAt(rest[i].Line, v.path+".kind", "is %q, want %sArgs", given, plugin)
		default:
			body.Content = append(body.Content, rest[i], rest[i+1])
		}
	}
	d.decode(&body, v.path, reflect.ValueOf(into).Elem())
	if len(d.errs) > before {
		return
	}
	if x, ok := into.(interface{ Validate() error }); ok {
		if err := x.Validate(); err != nil {
			d.fail(v.path, "%v", err)
		}
	}
}
