package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"trireme.dev/kit/mounts"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/podconfig"
)

func TestSubPathStaysInside(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("bind mounts need root")
	}
	m := New(Config{Dir: t.TempDir()})
	pod := podWith(&corev1.Volume{Name: "v"})
	t.Cleanup(func() {
		if err := m.Teardown("u"); err != nil {
			t.Error(err)
		}
	})
	paths, err := m.Setup(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(paths["v"], "escape")); err != nil {
		t.Fatal(err)
	}
	mounts := func(sub string) (string, error) {
		c := &corev1.Container{Name: "c", VolumeMounts: []*corev1.VolumeMount{{Name: "v", MountPath: "/m", SubPath: proto.String(sub)}}}
		got, err := m.Mounts(pod.Pod, c, paths, nil)
		if err != nil {
			return "", err
		}
		return got[0].HostPath, nil
	}
	for _, sub := range []string{"escape", "escape/passwd", "../x", "/etc"} {
		if got, err := mounts(sub); err == nil {
			t.Errorf("subPath %s leads to %s", sub, got)
		}
	}
	target, err := mounts("dir/below")
	if err != nil {
		if strings.Contains(err.Error(), "operation not permitted") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(target, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(paths["v"], "dir/below/f")); got != "x" {
		t.Errorf("read %q", got)
	}
	// What is mounted twice, by whomever, is not emptied.
	if err := unix.Mount(target, target, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := mounts("dir/below"); err == nil {
		t.Error("mounted over a mount that was still there")
	}
	if got := read(t, filepath.Join(paths["v"], "dir/below/f")); got != "x" {
		t.Errorf("read %q", got)
	}
}

func TestMemoryVolume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	m := New(Config{Dir: t.TempDir()})
	pod := podWith(
		&corev1.Volume{Name: "v", EmptyDir: &corev1.EmptyDirVolumeSource{Medium: proto.String("Memory"), SizeLimit: proto.String("1Mi")}},
		&corev1.Volume{Name: "s", Secret: &corev1.SecretVolumeSource{SecretName: "k"}})
	pod.Objects = podconfig.NewObjects(nil, []*corev1.Secret{{Metadata: &metav1.ObjectMeta{Name: "k"}, Data: map[string][]byte{"a": []byte("s")}}})
	paths, err := m.Setup(pod)
	if err != nil {
		if strings.Contains(err.Error(), "operation not permitted") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(paths["v"], "big"), make([]byte, 2<<20), 0o600); err == nil {
		t.Error("a volume of 1Mi holds 2 MiB")
	}
	if got := read(t, filepath.Join(paths["s"], "a")); got != "s" {
		t.Errorf("secret %q", got)
	}
	points, err := mounts.Below(m.cfg.Dir)
	if err != nil || len(points) != 2 {
		t.Errorf("mounts %v %v", points, err)
	}
	if _, err := m.Setup(pod); err != nil {
		t.Fatal(err)
	}
	if again, err := mounts.Below(m.cfg.Dir); err != nil || len(again) != 2 {
		t.Errorf("mounts after a second setup: %v %v", again, err)
	}
	if err := m.Teardown("u"); err != nil {
		t.Fatal(err)
	}
	if left, err := mounts.Below(m.cfg.Dir); err != nil || len(left) > 0 {
		t.Errorf("mounts after teardown: %v %v", left, err)
	}
}
