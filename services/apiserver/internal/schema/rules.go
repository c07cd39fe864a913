package schema

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/checker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	selfName    = "self"
	oldSelfName = "oldSelf"
	// A rule may cost this much, in CEL's unit of about one step, where every list and text that it looks at is so long:
	// one that compares every element with every other is refused at start. Counting steps while a rule runs would
	// cost as much as the rule.
	maxRuleCost   = 100_000
	assumedLength = 1024
)

// rule is a compiled rule of a message.
type rule struct {
	program    cel.Program
	when       []protoreflect.FieldDescriptor
	path       []protoreflect.FieldDescriptor
	message    string
	reason     metav1.RuleReason
	transition bool // compares with what was there before
}

// compileRules compiles the rules in the options of a message. A rule that does not compile, or speaks of fields that
// are not there, is an error at start.
func (c *Compiler) compileRules(d protoreflect.MessageDescriptor) ([]*rule, error) {
	declared, _ := proto.GetExtension(d.Options(), metav1.E_Rules).([]*metav1.Rule)
	if len(declared) == 0 {
		return nil, nil
	}
	self := cel.ObjectType(string(d.FullName()))
	env, err := c.base.Extend(cel.Types(newMessage(d).Interface()), cel.Variable(selfName, self), cel.Variable(oldSelfName, self))
	if err != nil {
		return nil, fmt.Errorf("rules of %s: %w", d.FullName(), err)
	}
	var out []*rule
	for _, r := range declared {
		compiled, err := compileRule(env, d, r)
		if err != nil {
			return nil, fmt.Errorf("rule %q of %s: %w", r.GetRule(), d.FullName(), err)
		}
		out = append(out, compiled)
	}
	return out, nil
}

func compileRule(env *cel.Env, d protoreflect.MessageDescriptor, r *metav1.Rule) (*rule, error) {
	ast, issues := env.Compile(r.GetRule())
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if ast.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("it gives %s, not true or false", ast.OutputType())
	}
	if r.GetMessage() == "" {
		return nil, fmt.Errorf("it has no message")
	}
	cost, err := env.EstimateCost(ast, lengths{})
	if err != nil {
		return nil, err
	}
	if cost.Max > maxRuleCost {
		return nil, fmt.Errorf("it may cost %d steps, %d are allowed", cost.Max, maxRuleCost)
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, err
	}
	out := &rule{program: program, message: r.GetMessage(), reason: r.GetReason()}
	for _, ref := range ast.NativeRep().ReferenceMap() {
		out.transition = out.transition || ref.Name == oldSelfName
	}
	for _, name := range r.GetWhen() {
		fd := d.Fields().ByJSONName(name)
		if fd == nil {
			return nil, fmt.Errorf("when: there is no field %q", name)
		}
		out.when = append(out.when, fd)
	}
	at := d
	for name := range strings.SplitSeq(r.GetFieldPath(), ".") {
		if name == "" {
			break
		}
		if at == nil || at.Fields().ByJSONName(name) == nil {
			return nil, fmt.Errorf("field_path: there is no field %q", r.GetFieldPath())
		}
		fd := at.Fields().ByJSONName(name)
		out.path = append(out.path, fd)
		at = fd.Message()
	}
	return out, nil
}

// lengths assumes how long lists, maps and texts are.
type lengths struct{}

// EstimateSize implements checker.CostEstimator.
func (lengths) EstimateSize(checker.AstNode) *checker.SizeEstimate {
	return &checker.SizeEstimate{Min: 0, Max: assumedLength}
}

// EstimateCallCost implements checker.CostEstimator.
func (lengths) EstimateCallCost(_, _ string, _ *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate {
	return nil
}

// ask reports a value that breaks the rule; old is what was there before, nil for a rule that does not ask.
func (r *rule) ask(p *path, self, old protoreflect.Message, out *violations) {
	for _, fd := range r.when {
		if !self.Has(fd) {
			return
		}
	}
	variables := values{self: self.Interface()}
	if old != nil {
		variables.old = old.Interface()
	}
	result, _, err := r.program.Eval(&variables)
	if err == nil && result.Value() == true {
		return
	}
	here, holder := p, self
	for i, fd := range r.path {
		here = here.field(fd.JSONName())
		if i < len(r.path)-1 {
			holder = holder.Get(fd).Message()
		}
	}
	switch {
	case err != nil:
		out.add(here, fmt.Sprintf("Invalid value: a rule cannot be checked (%s): %v", r.message, err))
	case r.reason == metav1.RuleReason_RULE_REASON_FORBIDDEN:
		out.forbidden(here, r.message)
	case r.reason == metav1.RuleReason_RULE_REASON_REQUIRED:
		out.required(here, r.message)
	case len(r.path) == 0:
		out.invalid(here, "("+p.last()+")", r.message)
	default:
		out.invalid(here, describe(r.path[len(r.path)-1], holder), r.message)
	}
}

// values are the variables of a rule, without a map.
type values struct{ self, old proto.Message }

// ResolveName implements cel.Activation.
func (v *values) ResolveName(name string) (any, bool) {
	switch name {
	case selfName:
		return v.self, true
	case oldSelfName:
		return v.old, v.old != nil
	}
	return nil, false
}

// Parent implements cel.Activation.
func (v *values) Parent() cel.Activation { return nil }

// ask puts all rules of a message that compare with nothing.
func (m *message) ask(p *path, self protoreflect.Message, out *violations) {
	for _, r := range m.rules {
		if !r.transition {
			r.ask(p, self, nil, out)
		}
	}
}
