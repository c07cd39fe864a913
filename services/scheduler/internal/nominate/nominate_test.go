package nominate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

func pod(t *testing.T, name, on string) *framework.PodInfo {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name}, Spec: &corev1.PodSpec{}}
	if on != "" {
		p.Spec.NodeName = proto.String(on)
	}
	info, err := framework.NewPodInfo(p)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestNominations as scripts: "p>n" nominates pod p for node n, "p>" takes it back, "p>n!" is the same of a pod that is bound
// already, and "-p" says that it is gone. A nomination that is taken back is in no list: not in that of a node without a name
// either, where Kubernetes 1.36 kept it.
func TestNominations(t *testing.T) {
	for _, tc := range []struct{ script, want string }{
		{"", ""},
		{"p>n", "n: p"},
		{"p>n q>n r>m", "m: r; n: p q"},
		{"p>n p>m", "m: p"},        // the last word counts
		{"p>n q>n p>n", "n: q p"},  // a new state of the pod
		{"p>n p>", ""}, {"p>", ""}, // taken back
		{"p>n q>n p>", "n: q"},     // of one alone
		{"p>n -p", ""}, {"-p", ""}, // gone
		{"p>n!", ""}, {"p>n p>n!", ""}, // bound
		{"p>n q>m -p p>m", "m: q p"}, // and again
		{"p>n q>n r>n -q", "n: p r"}, // in the order of nomination
		{"p>n p> q> r>m -r", ""},     // nothing is left of it
	} {
		t.Run(tc.script, func(t *testing.T) {
			n := New()
			where := map[string]string{}
			for step := range strings.FieldsSeq(tc.script) {
				before := n.Len()
				_, version, _ := n.ChangedSince(0, nil)
				was := fmt.Sprint(n.On("n"), n.On("m"))
				if gone, ok := strings.CutPrefix(step, "-"); ok {
					n.Forget(gone)
					delete(where, gone)
				} else {
					name, node, _ := strings.Cut(step, ">")
					node, bound := strings.CutSuffix(node, "!")
					on := ""
					if bound {
						on = node
					}
					n.Nominate(pod(t, name, on), node)
					if delete(where, name); node != "" && !bound {
						where[name] = node
					}
				}
				names, now, ok := n.ChangedSince(version, nil)
				if changed := was != fmt.Sprint(n.On("n"), n.On("m")); !ok || changed != (now > version) || changed != (len(names) > 0) {
					t.Errorf("%s: changed %t, told of %v at %d after %d (%d before)", step, changed, names, now, version, before)
				}
			}
			var got []string
			n.Each(func(node string, pods []*framework.PodInfo) {
				list := node + ":"
				for _, p := range pods {
					list += " " + p.UID()
					if n := where[p.UID()]; n != node {
						t.Errorf("%s is on %s, want %q", p.UID(), node, n)
					}
				}
				got = append(got, list)
			})
			slices.Sort(got)
			if list := strings.Join(got, "; "); list != tc.want {
				t.Errorf("nominated %q, want %q", list, tc.want)
			}
			for _, p := range []string{"p", "q", "r"} {
				if node := n.Node(p); node != where[p] {
					t.Errorf("%s is on %q, want %q", p, node, where[p])
				}
			}
			if n.Len() != len(where) {
				t.Errorf("%d are nominated, want %d", n.Len(), len(where))
			}
		})
	}
}
