package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"trireme.dev/services/apiserver/internal/request"
)

// Level is how much is told of a call.
type Level int

// The levels of Kubernetes, each with all of those before it.
const (
	None Level = iota
	Metadata
	Request
	RequestResponse
)

var levels = []string{"None", "Metadata", "Request", "RequestResponse"}

// String implements fmt.Stringer.
func (l Level) String() string { return levels[l] }

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *Level) UnmarshalYAML(n *yaml.Node) error {
	i := slices.Index(levels, n.Value)
	if i < 0 {
		return fmt.Errorf("line %d: level %q: want one of %s", n.Line, n.Value, strings.Join(levels, ", "))
	}
	*l = Level(i)
	return nil
}

// Stage is a moment of a call.
type Stage string

// The stages of Kubernetes.
const (
	RequestReceived  Stage = "RequestReceived"
	ResponseStarted  Stage = "ResponseStarted"
	ResponseComplete Stage = "ResponseComplete"
	Panic            Stage = "Panic"
)

var allStages = []Stage{RequestReceived, ResponseStarted, ResponseComplete, Panic}

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Stage) UnmarshalYAML(n *yaml.Node) error {
	if *s = Stage(n.Value); !slices.Contains(allStages, *s) {
		return fmt.Errorf("line %d: stage %q: want one of %v", n.Line, n.Value, allStages)
	}
	return nil
}

// Policy says what is told of which calls: the first rule that matches counts, and a call that none matches is not told of.
// It has the shape of Kubernetes' audit.k8s.io/v1 Policy.
type Policy struct {
	APIVersion string         `yaml:"apiVersion"`
	Kind       string         `yaml:"kind"`
	Metadata   map[string]any `yaml:"metadata"`
	Rules      []Rule         `yaml:"rules"`
	OmitStages []Stage        `yaml:"omitStages"`
	// OmitManagedFields leaves metadata.managedFields out of bodies.
	OmitManagedFields bool `yaml:"omitManagedFields"`

	// refusals tells of reads where they are refused, and of all writes: what holds without a file.
	refusals bool
}

// Rule is one rule of a policy. What it does not name matches everything.
type Rule struct {
	Level      *Level           `yaml:"level"`
	Users      []string         `yaml:"users"`
	UserGroups []string         `yaml:"userGroups"`
	Verbs      []string         `yaml:"verbs"`
	Resources  []GroupResources `yaml:"resources"`
	Namespaces []string         `yaml:"namespaces"`
	// NonResourceURLs are methods of no kind, as /grpc.health.v1.Health/*.
	NonResourceURLs   []string `yaml:"nonResourceURLs"`
	OmitStages        []Stage  `yaml:"omitStages"`
	OmitManagedFields *bool    `yaml:"omitManagedFields"`
}

// GroupResources are resources of one API group.
type GroupResources struct {
	Group string `yaml:"group"`
	// Resources as pods, pods/log, pods/*, */scale; all where it is empty.
	Resources     []string `yaml:"resources"`
	ResourceNames []string `yaml:"resourceNames"`
}

// Default is what holds without a file: who wrote what, and who was refused.
func Default() *Policy {
	return &Policy{refusals: true, OmitStages: []Stage{RequestReceived}}
}

// Load reads a policy. The error names every mistake with its line.
func Load(file string) (*Policy, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

func parse(raw []byte) (*Policy, error) {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	p := &Policy{}
	var wrong *yaml.TypeError
	switch err := d.Decode(p); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty")
	case errors.As(err, &wrong):
		var errs []error
		for _, e := range wrong.Errors {
			errs = append(errs, errors.New(unknownField.ReplaceAllString(e, "unknown field $1")))
		}
		return nil, errors.Join(errs...)
	case err != nil:
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file holds more than one document")
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	return p, p.check(&doc)
}

// check looks for what the types cannot rule out.
func (p *Policy) check(doc *yaml.Node) error {
	var errs []error
	if p.APIVersion != "audit.k8s.io/v1" || p.Kind != "Policy" {
		errs = append(errs, fmt.Errorf("apiVersion %q and kind %q: want audit.k8s.io/v1 and Policy", p.APIVersion, p.Kind))
	}
	if len(p.Rules) == 0 {
		errs = append(errs, errors.New("rules: at least one is needed"))
	}
	for i, r := range p.Rules {
		line := ruleLine(doc, i)
		if r.Level == nil {
			errs = append(errs, fmt.Errorf("line %d: rules[%d].level: Required value", line, i))
		}
		if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
			errs = append(errs, fmt.Errorf("line %d: rules[%d]: rules cannot apply to both regular resources and non-resource URLs", line, i))
		}
		for _, u := range r.NonResourceURLs {
			if u != "*" && !strings.HasPrefix(u, "/") || strings.Contains(strings.TrimSuffix(u, "*"), "*") {
				errs = append(errs, fmt.Errorf("line %d: rules[%d].nonResourceURLs: %q: begins with a slash, and * may only be its end", line, i, u))
			}
		}
	}
	return errors.Join(errs...)
}

func ruleLine(doc *yaml.Node, index int) int {
	if len(doc.Content) == 0 {
		return 0
	}
	root := doc.Content[0]
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "rules" && index < len(root.Content[i+1].Content) {
			return root.Content[i+1].Content[index].Line
		}
	}
	return 0
}

// verdict is what a policy says of a call.
type verdict struct {
	level             Level
	omit              []Stage
	omitManagedFields bool
}

// of returns what is told of a call.
func (p *Policy) of(at *request.Attributes) verdict {
	if p.refusals {
		if at.ReadOnly() || at.Resource == "" {
			return verdict{} // unless it is refused
		}
		return verdict{level: Metadata, omit: p.OmitStages}
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.matches(at) {
			continue
		}
		v := verdict{level: *r.Level, omit: slices.Concat(p.OmitStages, r.OmitStages), omitManagedFields: p.OmitManagedFields}
		if r.OmitManagedFields != nil {
			v.omitManagedFields = *r.OmitManagedFields
		}
		if v.level > Metadata && confidential(at) {
			v.level = Metadata
		}
		return v
	}
	return verdict{}
}

// confidential says of what no body may ever be told, whatever a policy says.
func confidential(at *request.Attributes) bool {
	return at.Resource == "" || at.Group == "" && at.Resource == "secrets" || at.Subresource == "token" || at.Long
}

func (r *Rule) matches(at *request.Attributes) bool {
	if len(r.Users) > 0 && !slices.Contains(r.Users, at.Caller.User) ||
		len(r.UserGroups) > 0 && !slices.ContainsFunc(at.Caller.Groups, func(g string) bool { return slices.Contains(r.UserGroups, g) }) ||
		len(r.Verbs) > 0 && !slices.Contains(r.Verbs, at.Verb) {
		return false
	}
	switch {
	case len(r.Resources)+len(r.Namespaces) > 0:
		return at.Resource != "" && r.matchesResource(at)
	case len(r.NonResourceURLs) > 0:
		return at.Resource == "" && slices.ContainsFunc(r.NonResourceURLs, func(u string) bool {
			prefix, open := strings.CutSuffix(u, "*")
			return u == at.Path || open && strings.HasPrefix(at.Path, prefix)
		})
	}
	return true
}

func (r *Rule) matchesResource(at *request.Attributes) bool {
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, at.Namespace) {
		return false
	}
	return len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, func(gr GroupResources) bool {
		if gr.Group != at.Group {
			return false
		}
		if len(gr.Resources) == 0 {
			return true
		}
		return slices.ContainsFunc(gr.Resources, func(res string) bool { return matchesOne(res, at) }) &&
			(len(gr.ResourceNames) == 0 || slices.Contains(gr.ResourceNames, at.Name))
	})
}

func matchesOne(pattern string, at *request.Attributes) bool {
	full := at.Resource
	if at.Subresource != "" {
		full += "/" + at.Subresource
	}
	if pattern == "*" || pattern == full {
		return true
	}
	resource, sub, found := strings.Cut(pattern, "/")
	return found && at.Subresource != "" && (resource == "*" && sub == at.Subresource || sub == "*" && resource == at.Resource)
}
