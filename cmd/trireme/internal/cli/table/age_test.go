package table_test

import (
	"testing"
	"time"

	"trireme.dev/cmd/trireme/internal/cli/table"
)

func TestAge(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		-5 * time.Second:                 "<invalid>",
		-time.Second:                     "0s",
		0:                                "0s",
		5*time.Second + time.Millisecond: "5s",
		119 * time.Second:                "119s",
		2 * time.Minute:                  "2m",
		2*time.Minute + 3*time.Second:    "2m3s",
		10 * time.Minute:                 "10m",
		179 * time.Minute:                "179m",
		4 * time.Hour:                    "4h",
		4*time.Hour + 5*time.Minute:      "4h5m",
		47 * time.Hour:                   "47h",
		3 * day:                          "3d",
		3*day + 2*time.Hour:              "3d2h",
		20 * day:                         "20d",
		900 * day:                        "2y170d",
		4000 * day:                       "10y",
	} {
		if got := table.Age(d); got != want {
			t.Errorf("Age(%s) = %s, want %s", d, got, want)
		}
	}
}
