package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxExpansion bounds the values that the aliases of one document may add to it: ten lines of aliases of aliases can
// stand for more values than memory holds.
const maxExpansion = 100_000

// readYAML reads all the documents of a text. On a syntax error the documents before it are returned with it: the rest
// of the text cannot be read.
func readYAML(data []byte) (nodes []node, failure *Error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decodeYAML(decoder, &document)
		if errors.Is(err, io.EOF) {
			return nodes, nil
		}
		if err != nil {
			failure := yamlSyntaxError(err)
			if line := breakingLine(data, err); line > failure.Line {
				failure.Line = line
			}
			return nodes, failure
		}
		t := yamlTree{expanding: map[*yaml.Node]bool{}}
		n, failure := t.convert(&document, 0)
		if failure != nil {
			return nodes, failure
		}
		nodes = append(nodes, n)
	}
}

// decodeYAML turns a panic of the library into an error: it parses what strangers wrote.
func decodeYAML(decoder *yaml.Decoder, into *yaml.Node) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the text cannot be parsed: %v", cause)
		}
	}()
	return decoder.Decode(into)
}

// breakingLine finds the line that makes a text fail as it does. The library names the line where the failing block
// begins, which may be pages above. It returns 0 where the text is too large to be parsed again and again.
func breakingLine(data []byte, failure error) int {
	const largest = 1 << 20
	if len(data) > largest {
		return 0
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	return 1 + sort.Search(len(lines), func(last int) bool {
		decoder := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:last+1], nil)))
		for {
			var document yaml.Node
			if err := decodeYAML(decoder, &document); err != nil {
				return err.Error() == failure.Error()
			}
		}
	})
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

func yamlSyntaxError(err error) *Error {
	text := err.Error()
	match := yamlLine.FindStringSubmatch(text)
	line, _ := strconv.Atoi(match[1])
	message := text[len(match[0]):]
	if strings.Contains(message, "found character that cannot start any token") {
		message += " (a tab? indent with spaces)"
	}
	return &Error{Line: line, Message: "not valid YAML: " + message}
}

// yamlTree converts the nodes of one document: scalars resolved, aliases and merge keys expanded.
type yamlTree struct {
	// expanding holds the anchored nodes that are being expanded, to find an anchor that contains itself.
	expanding map[*yaml.Node]bool
	// inAlias is the number of aliases around the current node.
	inAlias  int
	expanded int
}

func (t *yamlTree) convert(y *yaml.Node, depth int) (node, *Error) {
	if depth > maxDepth {
		return node{}, &Error{Line: y.Line, Message: fmt.Sprintf("values are nested more than %d deep", maxDepth)}
	}
	if t.inAlias > 0 {
		if t.expanded++; t.expanded > maxExpansion {
			return node{}, &Error{Line: y.Line, Message: fmt.Sprintf("aliases add more than %d values to the document", maxExpansion)}
		}
	}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 0 {
			return node{line: y.Line}, nil
		}
		return t.convert(y.Content[0], depth)
	case yaml.AliasNode:
		return t.alias(y, func(target *yaml.Node) (node, *Error) { return t.convert(target, depth+1) })
	case yaml.SequenceNode:
		return t.list(y, depth)
	case yaml.MappingNode:
		return t.object(y, depth)
	case yaml.ScalarNode:
		return scalar(y)
	default:
		// An empty document has no node at all.
		return node{line: y.Line}, nil
	}
}

// alias applies use to what an alias stands for. Lines are those of the anchor, where the text is.
func (t *yamlTree) alias(y *yaml.Node, use func(*yaml.Node) (node, *Error)) (node, *Error) {
	if t.expanding[y.Alias] {
		return node{}, &Error{Line: y.Line, Message: fmt.Sprintf("anchor %q contains itself", y.Value)}
	}
	t.expanding[y.Alias] = true
	t.inAlias++
	n, failure := use(y.Alias)
	t.inAlias--
	delete(t.expanding, y.Alias)
	return n, failure
}

func (t *yamlTree) list(y *yaml.Node, depth int) (node, *Error) {
	if err := collectionTag(y, "!!seq"); err != nil {
		return node{}, err
	}
	n := node{shape: shapeList, line: y.Line, items: make([]node, 0, len(y.Content))}
	for _, content := range y.Content {
		item, err := t.convert(content, depth+1)
		if err != nil {
			return node{}, err
		}
		n.items = append(n.items, item)
	}
	return n, nil
}

func (t *yamlTree) object(y *yaml.Node, depth int) (node, *Error) {
	if err := collectionTag(y, "!!map"); err != nil {
		return node{}, err
	}
	n := node{shape: shapeObject, line: y.Line, entries: make([]entry, 0, len(y.Content)/2)}
	var merges []*yaml.Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		name, content := y.Content[i], y.Content[i+1]
		if name.Kind == yaml.ScalarNode && name.Value == "<<" && name.Style&quoted == 0 && (name.Tag == "" || name.ShortTag() == "!!merge") {
			merges = append(merges, content)
			continue
		}
		key, err := t.key(name)
		if err != nil {
			return node{}, err
		}
		value, err := t.convert(content, depth+1)
		if err != nil {
			return node{}, err
		}
		n.entries = append(n.entries, entry{key: key, line: name.Line, value: value})
	}
	for _, merge := range merges {
		if err := t.merge(&n, merge, depth+1); err != nil {
			return node{}, err
		}
	}
	return n, nil
}

// merge adds the entries of what a merge key names, where the object does not have them itself. Of a list of mappings
// the first that has a key gives it.
func (t *yamlTree) merge(into *node, y *yaml.Node, depth int) *Error {
	if y.Kind == yaml.AliasNode {
		_, err := t.alias(y, func(target *yaml.Node) (node, *Error) { return node{}, t.merge(into, target, depth) })
		return err
	}
	if y.Kind == yaml.SequenceNode {
		for _, content := range y.Content {
			if content.Kind == yaml.SequenceNode {
				return &Error{Line: content.Line, Message: "a merge key (<<) takes a mapping or a list of mappings"}
			}
			if err := t.merge(into, content, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if y.Kind != yaml.MappingNode {
		return &Error{Line: y.Line, Message: "a merge key (<<) takes a mapping or a list of mappings"}
	}
	from, err := t.convert(y, depth)
	if err != nil {
		return err
	}
	own := make(map[string]bool, len(into.entries))
	for _, e := range into.entries {
		own[e.key] = true
	}
	for _, e := range from.entries {
		if !own[e.key] {
			into.entries = append(into.entries, e)
		}
	}
	return nil
}

// key reads a mapping's key. A plain key that YAML takes for something else than text is accepted only where both
// readings are spelled alike (8080, true): of yes and 0x10 nobody can tell what was meant.
func (t *yamlTree) key(y *yaml.Node) (string, *Error) {
	if y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	if y.Kind != yaml.ScalarNode {
		return "", &Error{Line: y.Line, Message: "a key must be a string"}
	}
	n, err := scalar(y)
	if err != nil {
		return "", err
	}
	if n.text != y.Value || n.shape == shapeNull {
		return "", &Error{Line: y.Line, Message: fmt.Sprintf("key %s is %s in YAML; quote it: %q", y.Value, n.describe(), y.Value)}
	}
	return n.text, nil
}

const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

func scalar(y *yaml.Node) (node, *Error) {
	n := node{line: y.Line, source: y.Value}
	if y.Style&quoted != 0 && y.Style&yaml.TaggedStyle == 0 {
		n.shape, n.text = shapeText, y.Value
		return n, nil
	}
	if y.Style&yaml.TaggedStyle == 0 {
		n.shape, n.text = resolvePlain(y.Value)
		return n, nil
	}
	n.shape, n.text = resolvePlain(y.Value)
	tag := y.ShortTag()
	switch tag {
	case "!!str", "!", "!!timestamp":
		n.shape, n.text = shapeText, y.Value
		return n, nil
	case "!!null", "!!bool", "!!int", "!!float":
		want := map[string]shape{"!!null": shapeNull, "!!bool": shapeBool, "!!int": shapeInteger, "!!float": shapeFloat}[tag]
		if n.shape == shapeInteger && want == shapeFloat {
			n.shape = shapeFloat
		}
		if n.shape == want {
			return n, nil
		}
		return node{}, &Error{Line: y.Line, Message: fmt.Sprintf("%q is not a %s", y.Value, tag)}
	default:
		return node{}, &Error{Line: y.Line, Message: fmt.Sprintf("the tag %s has no meaning here", tag)}
	}
}

func collectionTag(y *yaml.Node, want string) *Error {
	if tag := y.ShortTag(); y.Style&yaml.TaggedStyle != 0 && tag != want && tag != "!" {
		return &Error{Line: y.Line, Message: fmt.Sprintf("the tag %s has no meaning here", tag)}
	}
	return nil
}
