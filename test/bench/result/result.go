// Package result is what the programs of test/bench measure: lines of a table for people, and of a file for comparisons over
// time.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// Line is one number.
type Line struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Limit is what it is compared with, in the same unit; 0 where there is nothing.
	Limit float64 `json:"limit"`
	// Ratio of value to limit; 0 without a limit.
	Ratio float64 `json:"ratio"`
}

// New compares a number with a limit; 0 for none.
func New(name string, value float64, unit string, limit float64) Line {
	l := Line{Name: name, Value: value, Unit: unit, Limit: limit}
	if limit > 0 {
		l.Ratio = value / limit
	}
	return l
}

// Report prints the lines as a table, in which limit heads the column of limits, and appends them to a file as JSON.
func Report(file, limit string, lines []Line) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "NAME\tVALUE\tUNIT\t%s\tRATIO\n", limit)
	for _, l := range lines {
		limit, ratio := "-", "-"
		if l.Limit > 0 {
			limit, ratio = fmt.Sprintf("%.1f", l.Limit), fmt.Sprintf("%.2f", l.Ratio)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%s\t%s\t%s\n", l.Name, l.Value, l.Unit, limit, ratio)
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
	encoder := json.NewEncoder(f)
	for _, l := range lines {
		if err := encoder.Encode(l); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}
