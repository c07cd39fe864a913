package nodevolumelimits

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
	"trireme.dev/services/scheduler/plugins/internal/claimstest"
)

func TestFilter(t *testing.T) {
	const full = "Unschedulable: node(s) exceed max volume count"
	for _, c := range []struct {
		name  string
		limit *int32
		there []string // claims of a pod on the node
		asked []string
		want  string
	}{
		{"room", proto.Int32(3), []string{"a", "b"}, []string{"c"}, ""},
		{"full", proto.Int32(2), []string{"a", "b"}, []string{"c"}, full},
		{"two at once", proto.Int32(3), []string{"a", "b"}, []string{"c", "d"}, full},
		{"there already", proto.Int32(2), []string{"a", "b"}, []string{"b"}, ""},
		{"none allowed", proto.Int32(0), nil, []string{"a"}, full},
		{"no limit", nil, []string{"a", "b"}, []string{"c"}, ""},
		{"of no driver", proto.Int32(1), []string{"a"}, []string{"hostpath"}, ""},
		{"of another driver", proto.Int32(1), []string{"a"}, []string{"other"}, ""},
		{"to be made", proto.Int32(1), []string{"a"}, []string{"open"}, full},
		{"to be made, none there", proto.Int32(1), nil, []string{"open"}, ""},
		{"made by hand", proto.Int32(0), nil, []string{"byhand"}, ""},
		{"unknown", proto.Int32(0), nil, []string{"nosuch"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &claimstest.World{Nodes: []*corev1.Node{claimstest.Node("n", nil)}}
			w.Classes = append(w.Classes, claimstest.Class("x", "disk", true), claimstest.Class("y", volume.NoProvisioner, true))
			for name, driver := range map[string]string{"a": "disk", "b": "disk", "c": "disk", "d": "disk", "other": "tape", "hostpath": ""} {
				w.Claims = append(w.Claims, claimstest.Claim(name, "x", "1Gi", "v"+name))
				v := claimstest.Volume("v"+name, "x", "1Gi", name)
				if driver != "" {
					v.Spec.Csi = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
				}
				w.Volumes = append(w.Volumes, v)
			}
			w.Claims = append(w.Claims, claimstest.Claim("open", "x", "1Gi", ""), claimstest.Claim("byhand", "y", "1Gi", ""))
			w.Pods = append(w.Pods, claimstest.Pod(t, "there", "n", c.there...))
			w.Drivers = append(w.Drivers, &storagev1.CSINode{Metadata: &metav1.ObjectMeta{Name: "n"}, Spec: &storagev1.CSINodeSpec{Drivers: []*storagev1.CSINodeDriver{
				{Name: "disk", NodeId: "n", Allocatable: &storagev1.VolumeNodeResources{Count: c.limit}}, {Name: "tape", NodeId: "n"},
			}}})
			h := w.Handle(t)
			if got, _ := claimstest.Verdicts(t, h, New(h), claimstest.Pod(t, "p", "", c.asked...)); got["n"] != c.want {
				t.Errorf("got %q, want %q", got["n"], c.want)
			}
			w.Drivers = nil
			h = w.Handle(t)
			if got, _ := claimstest.Verdicts(t, h, New(h), claimstest.Pod(t, "p", "", c.asked...)); got["n"] != "" {
				t.Errorf("a node of which nothing is known: %q", got["n"])
			}
		})
	}
}
