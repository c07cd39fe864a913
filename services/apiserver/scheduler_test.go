package apiserver_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// explainer answers with the name of whoever asks.
type explainer struct {
	schedulingv1.UnimplementedSchedulerServiceServer
}

func (explainer) Explain(ctx context.Context, _ *schedulingv1.ExplainRequest) (*schedulingv1.ExplainResponse, error) {
	caller, _ := rpc.CallerFrom(ctx)
	return &schedulingv1.ExplainResponse{Summary: "asked by " + caller.User}, nil
}

// scheduler serves SchedulerService with a certificate and returns its address.
func (c *cluster) scheduler(ca *pki.CA, id pki.Identity) string {
	c.t.Helper()
	files, err := ca.Issue(c.t.TempDir(), "scheduler", id)
	if err != nil {
		c.t.Fatal(err)
	}
	srv, err := rpc.NewServer(rpc.ServerConfig{
		Name: "scheduler", TCP: "127.0.0.1:0", CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatal(err)
	}
	schedulingv1.RegisterSchedulerServiceServer(srv, explainer{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
	<-srv.Ready()
	return srv.Addr().String()
}

// leads tells the gateway, as schedulers do, that one leads and where it listens.
func (c *cluster) leads(name, address string, heartbeat time.Time) {
	c.t.Helper()
	components := client.For[*componentv1.Component](c.as("system:trireme-scheduler", nil))
	made, err := components.Create(c.t.Context(), &componentv1.Component{
		Metadata: &metav1.ObjectMeta{Name: name}, Spec: &componentv1.ComponentSpec{Component: proto.String("scheduler")},
	})
	if apierr.IsAlreadyExists(err) {
		made, err = components.Get(c.t.Context(), "", name)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	made.Status = &componentv1.ComponentStatus{
		Leader: proto.Bool(true), Address: proto.String(address), Host: proto.String("elsewhere"), HeartbeatAt: timestamppb.New(heartbeat),
	}
	if _, err := components.UpdateStatus(c.t.Context(), made); err != nil {
		c.t.Fatal(err)
	}
}

// The gateway passes questions on to the scheduler that leads, and only to one that proves to be a scheduler of this
// cluster. Each other case is one error that names the scheduler.
func TestQuestionsReachOnlyASchedulerThatLeads(t *testing.T) {
	c := newCluster(t)
	other, err := pki.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	scheduler := pki.Identity{CommonName: "system:trireme-scheduler", DNSNames: []string{"system:trireme-scheduler"}}
	asked := schedulingv1.NewSchedulerServiceClient(c.admin())
	ask := func() (string, error) {
		out, err := asked.Explain(t.Context(), &schedulingv1.ExplainRequest{Namespace: "default", Name: "p"})
		return out.GetSummary(), apierr.FromStatus(err)
	}
	if _, err := ask(); !apierr.IsUnavailable(err) || !strings.Contains(err.Error(), "no scheduler leads at the moment") {
		t.Errorf("without a scheduler: %v", err)
	}

	// The gateway goes by what its own watch has told it, so an answer may lag behind.
	askUntil := func(done func(error) bool) (said string, err error) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); <-tick.C {
			if said, err = ask(); err == nil || done(err) {
				break
			}
		}
		return said, err
	}

	now := time.Now()
	for k, s := range []struct{ name, address, want string }{
		{"gone", "127.0.0.1:1", "scheduler gone, the last that led, cannot answer: "},
		{"of-another-ca", c.scheduler(other, scheduler), "scheduler of-another-ca, the last that led, cannot answer: "},
		{"a-node", c.scheduler(c.ca, pki.Identity{CommonName: "system:node:n", DNSNames: []string{"n"}}), "scheduler a-node, the last that led, cannot answer: "},
		{"socket-elsewhere", "unix:///run/s.sock", "scheduler socket-elsewhere listens on a socket of host elsewhere only; give it --listen"},
		{"deaf", "", "scheduler deaf listens nowhere; give it --listen"},
	} {
		c.leads(s.name, s.address, now.Add(time.Duration(k)*time.Second))
		said, err := askUntil(func(err error) bool { return strings.Contains(err.Error(), s.name) })
		if !apierr.IsUnavailable(err) || !strings.Contains(err.Error(), s.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("scheduler %s: %q, %v; want UNAVAILABLE with %q", s.name, said, err, s.want)
		}
		t.Log(err)
	}
	// The one that was heard of last is asked, whatever others say of themselves.
	c.leads("real", c.scheduler(c.ca, scheduler), now.Add(time.Minute))
	said, err := askUntil(func(error) bool { return false })
	if err != nil || said != "asked by system:trireme-apiserver" {
		t.Errorf("the scheduler says %q, %v", said, err)
	}
	// People and services without system:masters do not get as far.
	for _, user := range []string{"system:trireme-controller", "somebody"} {
		_, err := schedulingv1.NewSchedulerServiceClient(c.as(user, nil)).Explain(t.Context(), &schedulingv1.ExplainRequest{Namespace: "default", Name: "p"})
		want(t, user+" asks", err, apierr.ReasonForbidden)
	}
}
