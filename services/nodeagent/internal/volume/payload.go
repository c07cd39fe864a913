package volume

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/containerspec"
)

const defaultMode = 0o644

// file is one file of a volume that shows API objects.
type file struct {
	// path relative to the volume.
	path string
	data []byte
	mode fs.FileMode
}

// payload computes the files of a volume that shows API objects, in order of path.
func payload(pod Pod, v *corev1.Volume) ([]file, error) {
	files := map[string]file{}
	var err error
	switch {
	case v.GetConfigMap() != nil:
		s := v.GetConfigMap()
		err = configMap(pod, files, s.GetName(), s.GetItems(), s.DefaultMode, s.GetOptional())
	case v.GetSecret() != nil:
		s := v.GetSecret()
		err = secret(pod, files, s.GetSecretName(), s.GetItems(), s.DefaultMode, s.GetOptional())
	case v.GetDownwardApi() != nil:
		s := v.GetDownwardApi()
		err = downwardAPI(pod, files, s.GetItems(), s.DefaultMode)
	case v.GetProjected() != nil:
		err = projected(pod, files, v.GetProjected())
	}
	if err != nil {
		return nil, err
	}
	list := make([]file, 0, len(files))
	for _, f := range files {
		if !filepath.IsLocal(f.path) {
			return nil, fmt.Errorf("path %q leads out of the volume", f.path)
		}
		list = append(list, f)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].path < list[j].path })
	return list, nil
}

func projected(pod Pod, files map[string]file, src *corev1.ProjectedVolumeSource) error {
	mode := src.DefaultMode
	for _, s := range src.GetSources() {
		var err error
		switch {
		case s.GetConfigMap() != nil:
			err = configMap(pod, files, s.GetConfigMap().GetName(), s.GetConfigMap().GetItems(), mode, s.GetConfigMap().GetOptional())
		case s.GetSecret() != nil:
			err = secret(pod, files, s.GetSecret().GetName(), s.GetSecret().GetItems(), mode, s.GetSecret().GetOptional())
		case s.GetDownwardApi() != nil:
			err = downwardAPI(pod, files, s.GetDownwardApi().GetItems(), mode)
		default:
			err = fmt.Errorf("this source of a projected volume is not supported: use configMap, secret or downwardAPI")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func configMap(pod Pod, files map[string]file, name string, items []*corev1.KeyToPath, mode *int32, optional bool) error {
	m, err := pod.Objects.ConfigMap(name)
	if err != nil {
		if optional && apierr.IsNotFound(err) {
			return nil
		}
		return err
	}
	data := map[string][]byte{}
	for k, v := range m.GetData() {
		data[k] = []byte(v)
	}
	for k, v := range m.GetBinaryData() {
		data[k] = v
	}
	return project(files, data, "configmap", name, items, mode, optional)
}

func secret(pod Pod, files map[string]file, name string, items []*corev1.KeyToPath, mode *int32, optional bool) error {
	s, err := pod.Objects.Secret(name)
	if err != nil {
		if optional && apierr.IsNotFound(err) {
			return nil
		}
		return err
	}
	return project(files, s.GetData(), "secret", name, items, mode, optional)
}

func project(files map[string]file, data map[string][]byte, kind, name string, items []*corev1.KeyToPath, mode *int32, optional bool) error {
	if len(items) == 0 {
		for k, v := range data {
			files[k] = file{path: k, data: v, mode: modeOf(nil, mode)}
		}
		return nil
	}
	for _, item := range items {
		v, ok := data[item.GetKey()]
		if !ok {
			if optional {
				continue
			}
			return fmt.Errorf("%s %q references non-existent key: %s", kind, name, item.GetKey())
		}
		path := filepath.Clean(item.GetPath())
		files[path] = file{path: path, data: v, mode: modeOf(item.Mode, mode)}
	}
	return nil
}

func downwardAPI(pod Pod, files map[string]file, items []*corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		var value string
		var err error
		if ref := item.GetResourceFieldRef(); ref != nil {
			value, err = containerspec.ResourceField(pod.Pod, "", pod.Node, ref)
		} else {
			value, err = containerspec.Field(pod.Pod, pod.Node, pod.PodIPs, item.GetFieldRef().GetFieldPath())
		}
		if err != nil {
			return err
		}
		path := filepath.Clean(item.GetPath())
		files[path] = file{path: path, data: []byte(value), mode: modeOf(item.Mode, mode)}
	}
	return nil
}

func modeOf(own, fallback *int32) fs.FileMode {
	switch {
	case own != nil:
		return fs.FileMode(*own) & fs.ModePerm
	case fallback != nil:
		return fs.FileMode(*fallback) & fs.ModePerm
	}
	return defaultMode
}
