package waterfall_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"trireme.dev/cmd/trireme/internal/cli/trace"
	"trireme.dev/cmd/trireme/internal/cli/trace/tracetext"
	"trireme.dev/cmd/trireme/internal/cli/waterfall"
)

// TestDraw draws the scripts in testdata: draw [width=N] [colour] [all], spans as tracetext reads them. Escapes are
// written ESC; ends of lines are marked where there is a space before them.
func TestDraw(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "draw" {
				d.Fatalf(t, "unknown directive %s", d.Cmd)
			}
			o := waterfall.Options{Width: 100, Colour: d.HasArg("colour"), All: d.HasArg("all")}
			if d.HasArg("width") {
				d.ScanArgs(t, "width", &o.Width)
			}
			tr := trace.Analyze(tracetext.Parse(t, d.Input))
			out := waterfall.Summary(tr) + waterfall.Draw(tr, o)
			return strings.ReplaceAll(out, "\x1b", "ESC")
		})
	})
}

func TestNoWiderThanTheTerminal(t *testing.T) {
	tr := trace.Analyze(tracetext.Parse(t, `
a - apiserver CreatePod 0 5
b a some-very-long-service-name a_span_with_a_name_that_is_much_longer_than_there_is_room_for_in_any_terminal 5 100 error=`+strings.Repeat("long_", 60)))
	for width := 80; width < 200; width++ {
		for _, line := range strings.Split(waterfall.Draw(tr, waterfall.Options{Width: width}), "\n") {
			if n := len([]rune(line)); n > width {
				t.Fatalf("line of %d in a terminal of %d: %q", n, width, line)
			}
		}
	}
	if waterfall.Draw(trace.Analyze(nil), waterfall.Options{}) != "" {
		t.Error("something was drawn of nothing")
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 20 * time.Microsecond: "20µs", 1234 * time.Microsecond: "1.2ms", 45 * time.Millisecond: "45ms",
		1234 * time.Millisecond: "1.23s", 45 * time.Second: "45.0s", 700 * time.Second: "11m40s", -time.Millisecond: "-1.0ms",
	} {
		if got := waterfall.Duration(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}
