package readme

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestBlocksHaveMarks(t *testing.T) {
	text := "# A\n\n<!-- run: sim -->\n```sh\necho one\necho two\n```\n\n<!-- not run: it stays -->\n```sh\nmake up\n```\n```yaml\na: b\n```\n"
	got, err := Blocks("x.md", []byte(text))
	if err != nil || len(got) != 2 || got[0] != (Block{5, "sim", "echo one\necho two\n"}) || got[1] != (Block{11, "", "make up\n"}) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"```sh\nls\n```\n":                      "x.md:1: the shell block has no mark",
		"<!-- run: -->\n```sh\nls\n```\n":       "x.md:2: the shell block has no mark",
		"<!-- not run: -->\n```sh\nls\n```\n":   "x.md:2: the shell block has no mark",
		"<!-- run: sim -->\n```sh\nls\n":        "x.md:3: the block does not end",
		"<!-- run: sim -->\n\n```sh\nls\n```\n": "x.md:3: the shell block has no mark",
	} {
		if _, err := Blocks("x.md", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestRunStopsAtTheFirstFailure(t *testing.T) {
	b := Block{Line: 7, Script: "echo HERE\nfalse\necho never\n"}
	out, err := b.Run(t.Context(), t.TempDir(), nil, []string{"HERE", "there"})
	if err == nil || !strings.Contains(err.Error(), "line 7") || out != "there\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestRunEndsWhatIsInTheBackground, or the block's output would not end.
func TestRunEndsWhatIsInTheBackground(t *testing.T) {
	b := Block{Script: "sleep 1000 &\necho done\nfalse\n"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := b.Run(ctx, t.TempDir(), nil, nil); err == nil || out != "done\n" || ctx.Err() != nil {
		t.Errorf("%q, %v", out, err)
	}
}

func TestRunBoundsWhatDoesNotEnd(t *testing.T) {
	got := script("cat /dev/zero >/dev/null   # follow; Ctrl-C ends it\necho done\n")
	want := "timeout --signal=INT 3 cat /dev/zero >/dev/null || [ $? -eq 124 ]\necho done\n"
	if got != want {
		t.Errorf("%q", got)
	}
}
