package explain

import (
	"fmt"
	"strings"

	"trireme.dev/services/scheduler/framework"
)

// few names at most three.
func few(names []string) string {
	if len(names) > maxCauseNodes {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxCauseNodes], ", "), len(names)-maxCauseNodes)
	}
	return and(names)
}

func and(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// verb is the form of a verb for so many, given both.
func verb(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

func names(pods []framework.Member) []string {
	var out []string
	for _, m := range pods {
		out = append(out, m.Pod.Name())
	}
	return out
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
