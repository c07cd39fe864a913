package cli_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/cmd/trireme/internal/contexts"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/apiserver/apitest"
)

// What is stored in a former form is rewritten once; what is no object is named, left as it is, and makes the command fail.
func TestMigrateStorage(t *testing.T) {
	s := apitest.New(t)
	p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() })
	const folder = "/trireme/scheduling/podgroups/default/"
	for _, name := range []string{"a", "b", "c"} {
		raw, err := proto.Marshal(&schedulingv1.PodGroup{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: "uid-" + name},
			Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1.GangSchedulingPolicy{MinCount: 2},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Put(t, folder+name, append([]byte{1, 1}, raw...))
	}
	migrate := func(wantCode int, wantOut, wantErr string, args ...string) {
		t.Helper()
		out, errOut, code := p.run(t.Context(), "", append([]string{"migrate-storage"}, args...)...)
		if code != wantCode || !strings.Contains(out, wantOut) || !strings.Contains(errOut, wantErr) || (errOut == "") != (wantErr == "") {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, errOut)
		}
	}
	// What comes before the key that a run goes on behind is left alone.
	migrate(0, "podgroups.scheduling.k8s.io: 1 seen, 1 rewritten in storage version 2\n1 rewritten\n", "", "pg", "--resume-after", folder+"b")
	if v := s.Stored(t, folder+"a"); v[1] != 1 {
		t.Errorf("storage version %d of what was passed over", v[1])
	}
	migrate(0, "2 rewritten", "")
	for _, name := range []string{"a", "b", "c"} {
		if v := s.Stored(t, folder+name); v[1] != 2 {
			t.Errorf("storage version %d of %s", v[1], name)
		}
	}
	migrate(0, "0 rewritten", "")

	garbage := "\x01\x02\xff\xff"
	s.Put(t, folder+"d", []byte(garbage))
	migrate(1, "", folder+"d: ", "podgroups")
	migrate(1, "", "1 values are no objects and were left as they are")
	if v := s.Stored(t, folder+"d"); string(v) != garbage {
		t.Errorf("what is no object became %q", v)
	}
}
