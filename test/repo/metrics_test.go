package repo

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// metricsTable lists all metrics.
const metricsTable = "docs/metrics.md"

// makers are the functions that make instruments, by name, and what Prometheus calls those.
func makers() map[string]string {
	out := map[string]string{"Counter": "counter", "Total": "counter", "Histogram": "histogram", "Gauge": "gauge"}
	for _, number := range []string{"Int64", "Float64"} {
		for _, api := range []string{"Counter", "ObservableCounter"} {
			out[number+api] = "counter"
		}
		for _, api := range []string{"Gauge", "ObservableGauge", "UpDownCounter", "ObservableUpDownCounter"} {
			out[number+api] = "gauge"
		}
		out[number+"Histogram"] = "histogram"
	}
	return out
}

var metricName = regexp.MustCompile(`^[a-z]+(_[a-z0-9]+)+$`)

// instruments are the metrics that the source makes, their types by name.
func instruments(t *tree) map[string]string {
	out, kinds := map[string]string{}, makers()
	for _, f := range t.written() {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || kinds[function.Sel.Name] == "" {
				return true
			}
			if name, ok := call.Args[0].(*ast.BasicLit); ok && name.Kind == token.STRING {
				if text, err := strconv.Unquote(name.Value); err == nil && metricName.MatchString(text) {
					out[text] = kinds[function.Sel.Name]
				}
			}
			return true
		})
	}
	return out
}

var listedRow = regexp.MustCompile("^\\| `([a-z0-9_]+)` \\| (\\w+) \\|")

// metricTable wants the table to list every metric of the source with its type, and no other.
func metricTable(t *tree) []string {
	made, listed := instruments(t), map[string]bool{}
	var out []string
	n := 0
	for line := range strings.Lines(t.text[metricsTable]) {
		n++
		m := listedRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at := fmt.Sprintf("%s:%d: %s", metricsTable, n, m[1])
		switch kind, ok := made[m[1]]; {
		case listed[m[1]]:
			out = append(out, at+" is listed twice")
		case !ok:
			out = append(out, at+" is made nowhere")
		case kind != m[2]:
			out = append(out, fmt.Sprintf("%s is a %s", at, kind))
		}
		listed[m[1]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if !listed[name] {
			out = append(out, fmt.Sprintf("%s: %s is not listed", metricsTable, name))
		}
	}
	return out
}

// queried finds names of metrics in a query: words with an underscore that no label is.
var queried = regexp.MustCompile(`\b(?:apiserver|etcd|kubelet|leader_election|rest_client|scheduler|trireme|workqueue|go|process)_[a-z0-9_]+\b`)

// dashboards wants every query of a dashboard to be about metrics that exist, and every panel to have a unit.
func dashboards(t *tree) []string {
	made := instruments(t)
	var out []string
	for _, p := range t.paths {
		if path.Dir(p) != "deploy/grafana" || path.Ext(p) != ".json" {
			continue
		}
		var board any
		if err := json.Unmarshal([]byte(t.text[p]), &board); err != nil {
			out = append(out, fmt.Sprintf("%s: %v", p, err))
			continue
		}
		queries := 0
		walkJSON(board, func(object map[string]any) {
			title, _ := object["title"].(string)
			if object["targets"] != nil && !strings.Contains(fmt.Sprint(object["fieldConfig"]), "unit:") {
				out = append(out, fmt.Sprintf("%s: %q has no unit", p, title))
			}
			for _, key := range []string{"expr", "query", "definition"} {
				query, ok := object[key].(string)
				if !ok {
					continue
				}
				queries++
				for _, name := range queried.FindAllString(query, -1) {
					if !measures(made, name) {
						out = append(out, fmt.Sprintf("%s: %s is made nowhere", p, name))
					}
				}
			}
		})
		if queries == 0 {
			out = append(out, p+": asks for nothing")
		}
	}
	return out
}

// measures reports whether a name in a query is a metric, or a series of a histogram. Those of the Go runtime and of the
// process are the Prometheus client's own.
func measures(made map[string]string, name string) bool {
	if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
		return true
	}
	for _, series := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, series); ok && made[base] == "histogram" {
			return true
		}
	}
	return made[name] != "" && made[name] != "histogram"
}

func walkJSON(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			walkJSON(v[key], visit)
		}
	case []any:
		for _, e := range v {
			walkJSON(e, visit)
		}
	}
}
