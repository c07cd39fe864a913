package quantity_test

import (
	"strings"
	"testing"

	"trireme.dev/client/quantity"
)

func parse(t *testing.T, s string) quantity.Quantity {
	t.Helper()
	q, err := quantity.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestParseAndFormat(t *testing.T) {
	for _, test := range []struct {
		in           string
		value, milli int64
		out          string
	}{
		{"500m", 1, 500, "500m"}, {"1500m", 2, 1500, "1500m"}, {"2", 2, 2000, "2"}, {"0.5", 1, 500, "500m"},
		{"2Gi", 2 << 30, 2 << 30 * 1000, "2Gi"}, {"1024Mi", 1 << 30, 1 << 30 * 1000, "1Gi"}, {"1e3", 1000, 1000000, "1e3"},
		{"1000", 1000, 1000000, "1k"}, {"0", 0, 0, "0"}, {"-1", -1, -1000, "-1"},
	} {
		q := parse(t, test.in)
		if q.Value() != test.value || q.MilliValue() != test.milli || q.Format() != test.out {
			t.Errorf("%s is %d, %dm, %q", test.in, q.Value(), q.MilliValue(), q.Format())
		}
	}
	for _, bad := range []string{"", "x", "1Q", "1 Gi", "--1", "1gi"} {
		if q, err := quantity.Parse(bad); err == nil {
			t.Errorf("%q is %s", bad, q)
		}
	}
}

func TestArithmetic(t *testing.T) {
	a, b := parse(t, "1500m"), parse(t, "2")
	if sum := a.Add(b); sum.Format() != "3500m" || a.Format() != "1500m" {
		t.Errorf("sum %s; a is now %s", sum, a)
	}
	if d := a.Sub(b); d.Format() != "-500m" || d.Sign() != -1 {
		t.Errorf("difference %s", d)
	}
	if a.Cmp(b) != -1 || b.Cmp(a) != 1 || parse(t, "1Gi").Cmp(parse(t, "1024Mi")) != 0 {
		t.Error("Cmp is wrong")
	}
	var zero quantity.Quantity
	if !zero.IsZero() || zero.Add(parse(t, "1Gi")).Format() != "1Gi" {
		t.Error("the zero value is not 0")
	}
	if quantity.New(4).Format() != "4" || quantity.NewMilli(250).Format() != "250m" || quantity.NewBytes(2<<20).Format() != "2Mi" {
		t.Error("a constructor is wrong")
	}
	// Sums stay exact where int64 does not reach.
	huge := parse(t, "9E")
	if sum := huge.Add(huge); sum.Format() != "18E" {
		t.Errorf("9E + 9E = %s", sum)
	}
}

// A number that would take minutes to print is refused at once; exbibytes are no exponent.
func TestExponents(t *testing.T) {
	for text, good := range map[string]bool{
		"1e3": true, "1E3": true, "1E": true, "1Ei": true, "2e-6": true, "1e64": true, "1e65": false, "e99999199": false,
		"1e999999999": false, "1e-999999999": false, "1ee3": false, strings.Repeat("1", 129): false,
	} {
		if _, err := quantity.Parse(text); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}
