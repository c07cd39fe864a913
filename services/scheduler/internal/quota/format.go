package quota

import (
	"fmt"
	"strconv"
)

// Format writes an amount as a quantity.
func Format(resource string, amount int64) string {
	switch resource {
	case "cpu":
		if amount%1000 == 0 {
			return strconv.FormatInt(amount/1000, 10)
		}
		return strconv.FormatInt(amount, 10) + "m"
	case "memory", "ephemeral-storage":
		for _, u := range []struct {
			name string
			size int64
		}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
			if amount != 0 && amount%u.size == 0 {
				return fmt.Sprintf("%d%s", amount/u.size, u.name)
			}
		}
	}
	return strconv.FormatInt(amount, 10)
}

// FormatAll writes amounts as quantities.
func FormatAll(a Amounts) map[string]string {
	if len(a) == 0 {
		return nil
	}
	out := make(map[string]string, len(a))
	for r, v := range a {
		out[r] = Format(r, v)
	}
	return out
}
