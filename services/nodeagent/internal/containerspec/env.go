package containerspec

import (
	"fmt"
	"sort"
	"strings"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/podconfig"
)

// ConfigError says that a container's configuration cannot be had as it is: CreateContainerConfigError.
type ConfigError struct{ Err error }

// Error is the message alone: it is shown to users as the reason why a container waits.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// Env is a container's environment: the variables in the order in which they were defined.
type Env struct {
	names  []string
	values map[string]string
}

func (e *Env) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// List gives NAME=value lines.
func (e *Env) List() []string {
	out := make([]string, len(e.names))
	for i, n := range e.names {
		out[i] = n + "=" + e.values[n]
	}
	return out
}

// Expand replaces $(NAME) by variables that are set and $$ by a dollar sign; a reference to an unset one stays.
func (e *Env) Expand(s string) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i+2:], ')')
			if end < 0 {
				b.WriteByte('$')
				continue
			}
			name := s[i+2 : i+2+end]
			if v, ok := e.values[name]; ok {
				b.WriteString(v)
			} else {
				b.WriteString(s[i : i+3+end])
			}
			i += 2 + end
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}

func (e *Env) expandAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = e.Expand(s)
	}
	return out
}

// Environment computes a container's environment. Its errors are *ConfigError.
func Environment(
	pod *corev1.Pod, c *corev1.Container, node Node, podIPs []string, objects *podconfig.Objects,
) (*Env, error) {
	env := &Env{values: map[string]string{}}
	for _, from := range c.GetEnvFrom() {
		if err := env.from(pod, from, objects); err != nil {
			return nil, &ConfigError{err}
		}
	}
	for _, v := range c.GetEnv() {
		if v.GetValueFrom() == nil {
			env.set(v.GetName(), env.Expand(v.GetValue()))
			continue
		}
		value, ok, err := valueFrom(pod, c, node, podIPs, objects, v.GetValueFrom())
		if err != nil {
			return nil, &ConfigError{err}
		}
		if ok {
			env.set(v.GetName(), value)
		}
	}
	return env, nil
}

func (e *Env) from(pod *corev1.Pod, from *corev1.EnvFromSource, objects *podconfig.Objects) error {
	var data map[string]string
	switch {
	case from.GetConfigMapRef() != nil:
		ref := from.GetConfigMapRef()
		m, err := objects.ConfigMap(ref.GetName())
		if err != nil {
			return unless(ref.GetOptional(), err)
		}
		data = m.GetData()
	case from.GetSecretRef() != nil:
		ref := from.GetSecretRef()
		s, err := objects.Secret(ref.GetName())
		if err != nil {
			return unless(ref.GetOptional(), err)
		}
		data = map[string]string{}
		for k, v := range s.GetData() {
			data[k] = string(v)
		}
	}
	keys := make([]string, 0, len(data))
	for k := range data {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		e.set(from.GetPrefix()+k, data[k])
	}
	return nil
}

// unless forgives that an optional object does not exist, but not that it could not be asked for.
func unless(optional bool, err error) error {
	if optional && apierr.IsNotFound(err) {
		return nil
	}
	return err
}

func valueFrom(
	pod *corev1.Pod, c *corev1.Container, node Node, podIPs []string, objects *podconfig.Objects, from *corev1.EnvVarSource,
) (value string, ok bool, err error) {
	namespace := pod.GetMetadata().GetNamespace()
	switch {
	case from.GetFieldRef() != nil:
		value, err = Field(pod, node, podIPs, from.GetFieldRef().GetFieldPath())
		return value, err == nil, err
	case from.GetResourceFieldRef() != nil:
		value, err = ResourceField(pod, c.GetName(), node, from.GetResourceFieldRef())
		return value, err == nil, err
	case from.GetConfigMapKeyRef() != nil:
		ref := from.GetConfigMapKeyRef()
		m, err := objects.ConfigMap(ref.GetName())
		if err != nil {
			return "", false, unless(ref.GetOptional(), err)
		}
		if v, ok := m.GetData()[ref.GetKey()]; ok {
			return v, true, nil
		}
		if ref.GetOptional() {
			return "", false, nil
		}
		return "", false, fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.GetKey(), namespace, ref.GetName())
	case from.GetSecretKeyRef() != nil:
		ref := from.GetSecretKeyRef()
		s, err := objects.Secret(ref.GetName())
		if err != nil {
			return "", false, unless(ref.GetOptional(), err)
		}
		if v, ok := s.GetData()[ref.GetKey()]; ok {
			return string(v), true, nil
		}
		if ref.GetOptional() {
			return "", false, nil
		}
		return "", false, fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.GetKey(), namespace, ref.GetName())
	}
	return "", false, fmt.Errorf("the source of this variable is not supported: use fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef")
}
