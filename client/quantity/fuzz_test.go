package quantity_test

import (
	"testing"

	"trireme.dev/client/quantity"
)

// FuzzParse reads any quantity: refused, or one that prints as what reads back equal.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1", "500m", "1.5Gi", "1e3", "-0.1", "1E18", "9223372036854775807", "1n", ".", "1e999999999", "+1Ki"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := quantity.Parse(text)
		if err != nil {
			return
		}
		again, err := quantity.Parse(q.String())
		if err != nil || again.Cmp(q) != 0 {
			t.Fatalf("%q prints as %q, which is %v, %v", text, q.String(), again, err)
		}
	})
}
