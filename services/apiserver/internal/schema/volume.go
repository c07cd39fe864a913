package schema

import (
	"slices"
	"strconv"
	"strings"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func checkVolume(p *path, v *corev1.Volume, out *violations) {
	if sources := volumeSources(v); len(sources) > 1 {
		slices.Sort(sources)
		for _, s := range sources[1:] {
			out.forbidden(p.field(s), "may not specify more than 1 volume type")
		}
	}
	if host := v.GetHostPath().GetPath(); climbs(host) {
		out.invalid(p.field("hostPath").field("path"), strconv.Quote(host), "must not contain '..'")
	}
	if q, ok := QuantityOf(v.GetEmptyDir().GetSizeLimit()); ok && q.Sign() < 0 {
		out.forbidden(p.field("emptyDir").field("sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
	checkProjected(p.field("projected"), v.GetProjected(), out)
}

// checkProjected refuses a source that is several, and two sources that fill one file.
func checkProjected(p *path, v *corev1.ProjectedVolumeSource, out *violations) {
	files := map[string]bool{}
	file := func(here *path, name string) {
		if name != "" && files[name] {
			out.invalid(here, strconv.Quote(name), "conflicting duplicate paths")
		}
		files[name] = true
	}
	for i, source := range v.GetSources() {
		here := p.field("sources").item(i)
		if kinds := set(source); len(kinds) > 1 {
			for _, k := range kinds[1:] {
				out.forbidden(here.field(k), "may not specify more than 1 volume type per source")
			}
		}
		for j, item := range source.GetConfigMap().GetItems() {
			file(here.field("configMap").field("items").item(j).field("path"), item.GetPath())
		}
		for j, item := range source.GetSecret().GetItems() {
			file(here.field("secret").field("items").item(j).field("path"), item.GetPath())
		}
		for j, item := range source.GetDownwardApi().GetItems() {
			file(here.field("downwardAPI").field("items").item(j).field("path"), item.GetPath())
		}
		file(here.field("serviceAccountToken").field("path"), source.GetServiceAccountToken().GetPath())
	}
}

// checkLocalPath refuses the path of a file that would lie outside its volume.
func checkLocalPath(p *path, file string, out *violations) {
	switch {
	case strings.HasPrefix(file, "/"):
		out.invalid(p, strconv.Quote(file), "must be a relative path")
	case climbs(file):
		out.invalid(p, strconv.Quote(file), "must not contain '..'")
	case strings.HasPrefix(file, ".."):
		out.invalid(p, strconv.Quote(file), "must not start with '..'")
	}
}

// climbs reports whether a path leads upwards.
func climbs(file string) bool {
	return strings.Contains(file, "..") && slices.Contains(strings.Split(file, "/"), "..")
}

func checkDownwardFile(p *path, f *corev1.DownwardAPIVolumeFile, out *violations) {
	checkLocalPath(p.field("path"), f.GetPath(), out)
	switch {
	case f.GetFieldRef() != nil && f.GetResourceFieldRef() != nil:
		out.invalid(p, `"resource"`, "fieldRef and resourceFieldRef can not be specified simultaneously")
	case f.GetFieldRef() != nil:
		checkFieldPath(p.field("fieldRef"), f.GetFieldRef(), volumeFields, out)
	case f.GetResourceFieldRef() != nil:
		checkResourceField(p.field("resourceFieldRef"), f.GetResourceFieldRef(), out)
		if f.GetResourceFieldRef().GetContainerName() == "" {
			out.required(p.field("resourceFieldRef").field("containerName"), "")
		}
	default:
		out.required(p, "one of fieldRef and resourceFieldRef is required")
	}
}
