package repo

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// foreign are traces of a machine that a change was made on. The pieces keep this file from matching itself.
func foreign() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`/ro` + `ot/[\w.]`),
		regexp.MustCompile(`/ho` + `me/\w+/\w`),
		regexp.MustCompile(`/Us` + `ers/\w+/\w`),
		regexp.MustCompile(`GO` + `PROXY|GONO` + `SUMDB|GO` + `INSECURE|GO` + `PRIVATE`),
		regexp.MustCompile(`https?://(10|192\.168|172\.(1[6-9]|2\d|3[01]))\.[\d.]+`),
		regexp.MustCompile(`https?://[\w.-]+\.(internal|intranet|corp|lan)\b`),
	}
}

// words finds foreign words, and those of the machine at hand, in all files.
func words(t *tree, machine []string) []string {
	patterns := foreign()
	for _, w := range machine {
		patterns = append(patterns, regexp.MustCompile(regexp.QuoteMeta(w)))
	}
	var out []string
	for _, p := range t.paths {
		n := 0
		for line := range strings.Lines(t.text[p]) {
			n++
			for _, re := range patterns {
				if m := re.FindString(line); m != "" {
					out = append(out, fmt.Sprintf("%s:%d: %s", p, n, m))
				}
			}
		}
	}
	return out
}

// machineWords are the checkout's own path and the hosts that the go command fetches from here.
func machineWords(checkout, proxies string) []string {
	var out []string
	if strings.Count(checkout, "/") > 1 {
		out = append(out, checkout)
	}
	for p := range strings.FieldsFuncSeq(proxies, func(r rune) bool { return r == ',' || r == '|' }) {
		u, err := url.Parse(strings.TrimSpace(p))
		if err == nil && u.Hostname() != "" && u.Hostname() != "localhost" {
			out = append(out, u.Hostname())
		}
	}
	return out
}

func TestForeignWords(t *testing.T) {
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	proxies, err := exec.Command("go", "env", "GO"+"PROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	machine := machineWords(checkout, strings.TrimSpace(string(proxies)))
	if home, err := os.UserHomeDir(); err == nil && strings.Count(home, "/") > 1 {
		machine = append(machine, home)
	}
	for _, finding := range words(realTree(t), machine) {
		t.Error(finding)
	}
}

func TestForeignWordsFinds(t *testing.T) {
	machine := machineWords("/src/checkout", "https://mirror.example.com/go,https://localhost:3000,direct")
	if diff := cmp.Diff([]string{"/src/checkout", "mirror.example.com"}, machine); diff != "" {
		t.Errorf("words of a machine (-want +got):\n%s", diff)
	}
	tr, err := readTree(fstest.MapFS{
		"a.txt": {Data: []byte("worker:x:/ho" + "me/worker:/bin/sh\nsee /ho" + "me/me/go\n")},
		"b.sh":  {Data: []byte("export GO" + "PROXY=off\ncurl https://" + "10.0.0.7:8081/x https://example.org\n")},
		"c.md":  {Data: []byte("get it from mirror.example.com\nin /src/checkout/bin and /ro" + "ot/go\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a.txt:2: /ho" + "me/me/g",
		"b.sh:1: GO" + "PROXY",
		"b.sh:2: https://" + "10.0.0.7",
		"c.md:1: mirror.example.com",
		"c.md:2: /ro" + "ot/g",
		"c.md:2: /src/checkout",
	}
	if diff := cmp.Diff(want, words(tr, machine)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
