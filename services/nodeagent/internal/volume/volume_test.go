package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/podconfig"
)

func podWith(volumes ...*corev1.Volume) Pod {
	return Pod{Pod: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "p", Uid: "u", Labels: map[string]string{"app": "web"}},
		Spec:     &corev1.PodSpec{Volumes: volumes},
	}}
}

func configMapOf(data map[string]string) *podconfig.Objects {
	return podconfig.NewObjects([]*corev1.ConfigMap{{Metadata: &metav1.ObjectMeta{Name: "settings"}, Data: data}}, nil)
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestConfigMapIsSwappedAtomically(t *testing.T) {
	m := New(Config{Dir: t.TempDir()})
	pod := podWith(&corev1.Volume{Name: "v", ConfigMap: &corev1.ConfigMapVolumeSource{Name: "settings", DefaultMode: proto.Int32(0o640)}})
	pod.Objects = configMapOf(map[string]string{"a": "1", "b": "2"})
	paths, err := m.Setup(pod)
	if err != nil {
		t.Fatal(err)
	}
	dir := paths["v"]
	if got := read(t, filepath.Join(dir, "a")); got != "1" {
		t.Errorf("a = %q", got)
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
	before, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(pod); err != nil {
		t.Fatal(err)
	}
	if same, err := os.Readlink(filepath.Join(dir, "..data")); err != nil || same != before {
		t.Errorf("unchanged content was written again: %v", err)
	}
	pod.Objects = configMapOf(map[string]string{"a": "new", "c": "3"})
	if _, err := m.Setup(pod); err != nil {
		t.Fatal(err)
	}
	if read(t, filepath.Join(dir, "a")) != "new" || read(t, filepath.Join(dir, "c")) != "3" {
		t.Error("the new content is not there")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..20") {
			names = append(names, e.Name())
		}
	}
	if got := strings.Join(names, " "); got != "..data a c" || len(entries) != 4 {
		t.Errorf("in the volume: %v", entries)
	}
	if err := m.Teardown("u"); err != nil {
		t.Fatal(err)
	}
	if uids, err := m.UIDs(); err != nil || len(uids) > 0 {
		t.Errorf("left over: %v %v", uids, err)
	}
}

func TestPayload(t *testing.T) {
	objects := configMapOf(map[string]string{"a": "1", "b": "2"})
	item := func(key, path string) *corev1.KeyToPath { return &corev1.KeyToPath{Key: key, Path: path} }
	for name, tt := range map[string]struct {
		volume     *corev1.Volume
		want, fail string
	}{
		"items": {
			volume: &corev1.Volume{ConfigMap: &corev1.ConfigMapVolumeSource{Name: "settings", Items: []*corev1.KeyToPath{item("a", "x/y")}}},
			want:   "x/y=1",
		},
		"missing key": {
			volume: &corev1.Volume{ConfigMap: &corev1.ConfigMapVolumeSource{Name: "settings", Items: []*corev1.KeyToPath{item("z", "x")}}},
			fail:   `configmap "settings" references non-existent key: z`,
		},
		"missing object":  {volume: &corev1.Volume{Secret: &corev1.SecretVolumeSource{SecretName: "none"}}, fail: `secret "none" not found`},
		"optional object": {volume: &corev1.Volume{Secret: &corev1.SecretVolumeSource{SecretName: "none", Optional: proto.Bool(true)}}},
		"out of the volume": {
			volume: &corev1.Volume{ConfigMap: &corev1.ConfigMapVolumeSource{Name: "settings", Items: []*corev1.KeyToPath{item("a", "../../etc/x")}}},
			fail:   `path "../../etc/x" leads out of the volume`,
		},
		"projected": {
			volume: &corev1.Volume{Projected: &corev1.ProjectedVolumeSource{Sources: []*corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{Name: "settings", Items: []*corev1.KeyToPath{item("b", "b")}}},
				{DownwardApi: &corev1.DownwardAPIProjection{Items: []*corev1.DownwardAPIVolumeFile{
					{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				}}},
			}}},
			want: `b=2 labels=app="web"`,
		},
		"projected token": {
			volume: &corev1.Volume{Projected: &corev1.ProjectedVolumeSource{Sources: []*corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}},
			}}},
			fail: "this source of a projected volume is not supported: use configMap, secret or downwardAPI",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith()
			pod.Objects = objects
			files, err := payload(pod, tt.volume)
			if err != nil || tt.fail != "" {
				if err == nil || err.Error() != tt.fail {
					t.Errorf("got %v, want %s", err, tt.fail)
				}
				return
			}
			var got []string
			for _, f := range files {
				got = append(got, f.path+"="+string(f.data))
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
		})
	}
}

func TestUnsupportedVolumeSaysSo(t *testing.T) {
	m := New(Config{Dir: t.TempDir()})
	_, err := m.Setup(podWith(&corev1.Volume{Name: "data", Nfs: &corev1.NFSVolumeSource{Server: "s", Path: "/p"}}, &corev1.Volume{Name: "ok"}))
	want := `MountVolume.SetUp failed for volume "data" : volumes of kind nfs are not supported: use emptyDir, hostPath, configMap, secret, downwardAPI or projected`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestHostPath(t *testing.T) {
	m := New(Config{Dir: t.TempDir()})
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, kind string
		ok         bool
	}{
		{"file", "File", true}, {"file", "Directory", false}, {"file", "Socket", false}, {"file", "", true},
		{"none", "Directory", false}, {"none", "File", false}, {"made/deep", "DirectoryOrCreate", true}, {"made/file", "FileOrCreate", true},
		{"implied", "", true}, {".", "Directory", true}, {".", "CharDevice", false}, {"file", "DirectoryOrCreate", false},
	} {
		_, err := m.hostPath(&corev1.HostPathVolumeSource{Path: filepath.Join(root, tt.path), Type: proto.String(tt.kind)})
		if (err == nil) != tt.ok {
			t.Errorf("%s as %q: %v", tt.path, tt.kind, err)
		}
	}
	if _, err := m.hostPath(&corev1.HostPathVolumeSource{Path: "/dev/null", Type: proto.String("CharDevice")}); err != nil {
		t.Error(err)
	}
	if _, err := m.hostPath(&corev1.HostPathVolumeSource{Path: "/dev/null", Type: proto.String("BlockDevice")}); err == nil {
		t.Error("/dev/null passes for a block device")
	}
}
