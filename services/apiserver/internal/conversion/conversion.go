// Package conversion turns objects of one version of a kind into another: one pair of pure functions between the version
// that is stored and each other one, all in one table. What a version has no field for, it keeps in annotations, so that
// no way there and back loses anything. It also brings stored values of former forms to the present one. It knows
// neither defaults nor rules, stores nothing and talks to nobody. In the chain the registry asks it, between a request's
// version and what is stored.
package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Object is an object of any kind.
type Object interface {
	proto.Message
	GetMetadata() *metav1.ObjectMeta
}

// Pair converts between the stored version of a kind and another one. Neither function changes what it is given, and
// results share nothing with it. Annotations that hold what a version cannot express are the conversion's own: under
// their keys nothing else survives.
type Pair struct {
	// Version and Stored are the messages.
	Version, Stored protoreflect.FullName
	// ToStored takes an object of the version to the stored one, FromStored the other way.
	ToStored, FromStored func(Object) (Object, error)
	// Kept are annotations of the version that stand for fields it does not know: an update that leaves them out says
	// nothing about those fields.
	Kept []string
	// Status are annotations of the stored version that stand for status, and are written with it; StatusHere are those of
	// the version.
	Status, StatusHere []string
}

// Table lists all pairs.
func Table() []Pair {
	return []Pair{
		pair(autoscalerToStored, autoscalerFromStored, Pair{StatusHere: []string{currentMetrics, conditions}}),
		pair(podGroupAlpha2ToStored, podGroupAlpha2FromStored, Pair{Kept: []string{restOfSpec}}),
		pair(gangToStored, gangFromStored, Pair{Kept: []string{restOfSpec, restOfStatus}, Status: []string{gangStatus}, StatusHere: []string{restOfStatus}}),
	}
}

// Find returns the pair of a version; ok is false where there is none.
func Find(version protoreflect.FullName) (p Pair, ok bool) {
	for _, p := range Table() {
		if p.Version == version {
			return p, true
		}
	}
	return Pair{}, false
}

// pair makes one of typed functions, which get clones to take apart.
func pair[V, S Object](to func(V) S, from func(S) V, p Pair) Pair {
	var v V
	var s S
	p.Version, p.Stored = v.ProtoReflect().Descriptor().FullName(), s.ProtoReflect().Descriptor().FullName()
	p.ToStored = func(obj Object) (Object, error) {
		own, ok := proto.Clone(obj).(V)
		if !ok {
			return nil, fmt.Errorf("convert %T: want %T", obj, v)
		}
		return to(own), nil
	}
	p.FromStored = func(obj Object) (Object, error) {
		own, ok := proto.Clone(obj).(S)
		if !ok {
			return nil, fmt.Errorf("convert %T: want %T", obj, s)
		}
		return from(own), nil
	}
	return p
}

// take removes an annotation and returns its text, empty where there is none.
func take(meta *metav1.ObjectMeta, key string) string {
	text := meta.GetAnnotations()[key]
	if meta != nil {
		delete(meta.Annotations, key)
	}
	return text
}

// put sets an annotation of an object whose metadata may be missing.
func put(meta **metav1.ObjectMeta, key, text string) {
	if *meta == nil {
		*meta = &metav1.ObjectMeta{}
	}
	if (*meta).Annotations == nil {
		(*meta).Annotations = map[string]string{}
	}
	(*meta).Annotations[key] = text
}

// text gives a message as JSON, the same for the same message: protojson alone varies its spaces.
func text(m proto.Message) string {
	raw, err := protojson.Marshal(m)
	if err != nil {
		// Only text that is no UTF-8, which no message off the wire has.
		return ""
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return string(raw)
	}
	return out.String()
}

// read is the way back from text; false where it is none.
func read(text string, into proto.Message) bool {
	return text != "" && protojson.Unmarshal([]byte(text), into) == nil
}

// recode copies a message into one that has the same fields under the same numbers.
func recode[T proto.Message](from proto.Message, into T) T {
	raw, err := proto.Marshal(from)
	if err == nil {
		err = proto.Unmarshal(raw, into)
	}
	if err != nil {
		// Only text that is no UTF-8: then nothing of it can be kept in any version.
		proto.Reset(into)
	}
	return into
}

// empty reports whether a message says nothing.
func empty(m proto.Message) bool { return proto.Size(m) == 0 }
