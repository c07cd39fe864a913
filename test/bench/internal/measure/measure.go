// Package measure is what the benchmarks share: results beside their limits, printed as a table and kept as JSON lines,
// and the limits that Go benchmarks of other modules measure.
package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// Result is one line of a report.
type Result struct {
	// Name of the figure, with its area in front: api.create_per_s.
	Name string `json:"name"`
	// Value in Unit.
	Value float64 `json:"value"`
	// Unit of Value and Limit.
	Unit string `json:"unit"`
	// Limit is what lies below, in the same unit; 0 where nothing does.
	Limit float64 `json:"limit"`
	// Ratio of value to limit; 0 without a limit.
	Ratio float64 `json:"ratio"`
}

// Results of a run.
type Results []Result

// Add appends a result; a limit of 0 stands for none.
func (r *Results) Add(name string, value float64, unit string, limit float64) {
	out := Result{Name: name, Value: value, Unit: unit, Limit: limit}
	if limit > 0 {
		out.Ratio = value / limit
	}
	*r = append(*r, out)
}

// Report prints the table, in which limit heads the column of limits, and appends the lines to a file, which is made where
// it is missing.
func (r Results) Report(file, limit string) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "NAME\tVALUE\tUNIT\t%s\tRATIO\n", limit)
	for _, r := range r {
		limit, ratio := "-", "-"
		if r.Limit > 0 {
			limit, ratio = fmt.Sprintf("%.1f", r.Limit), fmt.Sprintf("%.2f", r.Ratio)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, limit, ratio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(f)
	for _, r := range r {
		if err := lines.Encode(r); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}
