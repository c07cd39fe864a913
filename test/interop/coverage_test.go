package interop

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// allowed reads missing.txt: one field a line, "PodSpec.example: reason".
func allowed(t testing.TB) map[string]string {
	t.Helper()
	file, err := os.Open("missing.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	reasons := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		field, reason, found := strings.Cut(line, ": ")
		if !found || strings.TrimSpace(reason) == "" {
			t.Fatalf("missing.txt: %q gives no reason", line)
		}
		if reasons[field] != "" {
			t.Fatalf("missing.txt: %s stands there twice", field)
		}
		reasons[field] = reason
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return reasons
}

// TestCoverage counts, for each kind, how many of Kubernetes' fields we know, and names the others. A field that only
// one side has must stand in missing.txt with a reason, and nothing may stand there without need.
func TestCoverage(t *testing.T) {
	scheme := kubernetesScheme(t)
	reasons := allowed(t)
	used := map[string]bool{}
	table := []string{fmt.Sprintf("%-36s %9s %9s", "kind", "ours", "theirs")}
	var missing []string
	for _, p := range pairs(t) {
		c := cover(reflect.TypeOf(p.fresh(t, scheme)).Elem(), p.kind.Message.Descriptor())
		table = append(table, fmt.Sprintf("%-36s %9d %9d", p, c.known, c.total))
		for _, g := range c.gaps {
			used[g.field] = true
			side := "missing"
			if g.ours {
				side = "unknown to Kubernetes"
			}
			line := fmt.Sprintf("%s: %s: %s (%s)", p, g.path, side, g.field)
			missing = append(missing, line)
			if reasons[g.field] == "" {
				t.Errorf("%s; add it to proto/, or to missing.txt with a reason", line)
			}
		}
	}
	for field := range reasons {
		if !used[field] {
			t.Errorf("missing.txt: %s is no longer missing; remove the line", field)
		}
	}
	slices.Sort(missing)
	t.Logf("fields known of those that Kubernetes has:\n%s\n\n%s", strings.Join(table, "\n"), strings.Join(missing, "\n"))
}
