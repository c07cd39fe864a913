package manifest

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// suggestField completes "unknown field" with what was probably meant: a field of the message that is spelled much
// alike, or the field of that very name one level down. Empty where nothing is close, or several things are.
func suggestField(s *schema, d protoreflect.MessageDescriptor, name string) string {
	names := make([]string, len(s.fields))
	for i, f := range s.fields {
		names[i] = f.name
	}
	if match := closest(name, names); match != "" {
		return "; did you mean " + match + "?"
	}
	var below []*field
	for _, f := range s.fields {
		// Of metadata and status nobody forgets the heading.
		if f.messageType == nil || f.IsMap() || f.wellKnown != "" || f.name == "status" || f.messageType == d {
			continue
		}
		if schemaOf(f.messageType).byName[name] != nil {
			below = append(below, f)
		}
	}
	switch {
	case len(below) != 1:
		return ""
	case below[0].IsList():
		return "; it is a field of each of " + below[0].name
	default:
		return "; did you mean " + below[0].name + "." + name + "?"
	}
}

// closest returns the name that word was probably meant to be, or nothing.
func closest(word string, names []string) string {
	best, bestDistance := "", 1+max(1, len(word)/4)
	for _, name := range names {
		distance := editDistance(strings.ToLower(word), strings.ToLower(name))
		if distance < bestDistance {
			best, bestDistance = name, distance
		}
	}
	return best
}

// editDistance counts the letters to insert, delete, replace or swap with their neighbour that make b of a.
func editDistance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	var rows [3][longest + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, above, twoAbove := &rows[i%3], &rows[(i-1)%3], &rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := above[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], twoAbove[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
