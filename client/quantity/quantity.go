// Package quantity does arithmetic on Kubernetes quantities: 500m, 2Gi, 1e3. Objects hold them as strings; here they
// are parsed, added, compared and printed in canonical form.
package quantity

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Quantity is an exact decimal number with the suffix style that it is printed in. The zero value is 0.
type Quantity struct{ q resource.Quantity }

const (
	// maxText and maxExponent bound what a quantity is read from. Nothing that is measured comes near; the arithmetic on
	// a number with an exponent of a billion takes minutes and gigabytes, which one request must not cost.
	maxText     = 128
	maxExponent = 64
)

// Parse reads a quantity.
func Parse(s string) (Quantity, error) {
	if len(s) > maxText {
		return Quantity{}, fmt.Errorf("quantity of %d bytes: at most %d are read", len(s), maxText)
	}
	if at := strings.LastIndexAny(s, "eE"); at >= 0 && at < len(s)-1 && s[at+1:] != "i" {
		if n, err := strconv.Atoi(s[at+1:]); err != nil || n > maxExponent || n < -maxExponent {
			return Quantity{}, fmt.Errorf("quantity %q: the exponent must be a number between -%d and %d", s, maxExponent, maxExponent)
		}
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return Quantity{}, fmt.Errorf("quantity %q: %w", s, err)
	}
	return Quantity{q}, nil
}

// New returns a whole number of units, printed with decimal suffixes: 4, 110, 12k.
func New(value int64) Quantity { return Quantity{*resource.NewQuantity(value, resource.DecimalSI)} }

// NewMilli returns thousandths, printed with decimal suffixes: 500m.
func NewMilli(value int64) Quantity {
	return Quantity{*resource.NewMilliQuantity(value, resource.DecimalSI)}
}

// NewBytes returns a number of bytes, printed with binary suffixes: 2Gi.
func NewBytes(value int64) Quantity {
	return Quantity{*resource.NewQuantity(value, resource.BinarySI)}
}

// Value in units, rounded up; the largest or smallest int64 where it does not fit.
func (q Quantity) Value() int64 { return q.q.Value() }

// MilliValue in thousandths, rounded up; the largest or smallest int64 where it does not fit.
func (q Quantity) MilliValue() int64 { return q.q.MilliValue() }

// Add returns the sum, printed in q's style unless q is zero.
func (q Quantity) Add(other Quantity) Quantity {
	sum := q.q.DeepCopy()
	sum.Add(other.q)
	return Quantity{sum}
}

// Sub returns the difference, printed in q's style unless q is zero.
func (q Quantity) Sub(other Quantity) Quantity {
	difference := q.q.DeepCopy()
	difference.Sub(other.q)
	return Quantity{difference}
}

// Cmp is -1, 0 or 1 where q is less than, equal to or greater than other.
func (q Quantity) Cmp(other Quantity) int { return q.q.Cmp(other.q) }

// Sign is -1, 0 or 1.
func (q Quantity) Sign() int { return q.q.Sign() }

// IsZero reports whether q is 0.
func (q Quantity) IsZero() bool { return q.q.IsZero() }

// Format prints the canonical form: 1500m, 2Gi.
func (q Quantity) Format() string {
	// The copy keeps the cached spelling of a shared value from being written by two readers at once.
	c := q.q.DeepCopy()
	return c.String()
}

// String is Format.
func (q Quantity) String() string { return q.Format() }
