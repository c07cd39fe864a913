package measure

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// GoBenchmark runs one benchmark of a module and returns the metric that it reports. The limits below Trireme are
// measured where their clients may be imported: etcd's in the gateway's storage, containerd's in the node agent's
// runtime.
func GoBenchmark(ctx context.Context, module, pkg, tags, name, metric string) (float64, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-tags", tags, "-run", "^$", "-bench", "^"+name+"$", "-benchtime", "3s", pkg)
	cmd.Dir = module
	text, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w\n%s", name, module, err, text)
	}
	found := regexp.MustCompile(`([0-9.]+) ` + regexp.QuoteMeta(metric) + `\b`).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("%s of %s reports no %s:\n%s", name, module, metric, text)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
