package component_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"trireme.dev/kit/component"
)

func TestErrorsAreRememberedAndStillLogged(t *testing.T) {
	var out bytes.Buffer
	logger, errs := component.Remember(slog.New(slog.NewTextHandler(&out, nil)))
	if errs.Last() != nil {
		t.Error("an error before any was logged")
	}
	logger.With("pod", "default/a").Warn("not an error")
	if errs.Last() != nil {
		t.Error("a warning counts as an error")
	}
	logger.With("pod", "default/a").Error("periodic run failed", "loop", "x", "error", errors.New("disk on fire\nstack"))
	last := errs.Last()
	if last.GetMessage() != "periodic run failed: disk on fire" || last.GetTime().AsTime().IsZero() {
		t.Errorf("remembered %v", last)
	}
	if log := out.String(); !strings.Contains(log, "pod=default/a") || !strings.Contains(log, "disk on fire") || !strings.Contains(log, "not an error") {
		t.Errorf("log lacks lines:\n%s", log)
	}
	logger.Error(strings.Repeat("é", 1000))
	if got := errs.Last().GetMessage(); len(got) > 510 || !strings.HasSuffix(got, "…") {
		t.Errorf("a long message is kept with %d bytes", len(got))
	}
	// One that writes nothing remembers all the same.
	logger, errs = component.Remember(slog.New(slog.DiscardHandler))
	logger.Error("seen")
	if errs.Last().GetMessage() != "seen" {
		t.Errorf("remembered %v", errs.Last())
	}
	var none *component.Errors
	if none.Last() != nil {
		t.Error("nil remembers something")
	}
}

func TestNamesAreNamesOfObjects(t *testing.T) {
	for _, tt := range []struct{ component, instance, want string }{
		{"scheduler", "Host_AB12", "scheduler-host-ab12"},
		{"apiserver", "a.example.com-7443", "apiserver-a.example.com-7443"},
		{"controller", "x-", "controller-x"},
	} {
		if got := component.Name(tt.component, tt.instance); got != tt.want {
			t.Errorf("Name(%s, %s) = %s, want %s", tt.component, tt.instance, got, tt.want)
		}
	}
	if a, b := component.Instance("", "/run/a.sock"), component.Instance("", "/run/b.sock"); a == b || a != component.Instance("", "/run/a.sock") {
		t.Errorf("instances of two sockets: %s and %s", a, b)
	}
	if got := component.Instance("127.0.0.1:7443", ""); !strings.HasSuffix(got, "-7443") {
		t.Errorf("instance by port: %s", got)
	}
}
