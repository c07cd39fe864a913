package leader_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/internal/gatewaytest"
	"trireme.dev/client/leader"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// candidate leads until it is told to stop or loses, and tells when it begins and ends.
type candidate struct {
	stop  context.CancelFunc
	began chan time.Time
	ended chan time.Time
	run   chan error
}

func contend(t *testing.T, conn grpc.ClientConnInterface, identity string) *candidate {
	ctx, cancel := context.WithCancel(t.Context())
	c := &candidate{
		stop: cancel, began: make(chan time.Time, 10), ended: make(chan time.Time, 10), run: make(chan error, 1),
	}
	go func() {
		c.run <- leader.Run(ctx, leader.Config{Name: "test", Identity: identity, Logger: quiet}, conn,
			func(ctx context.Context, _ *coordinationv1.LeaseClaim) error {
				c.began <- time.Now()
				<-ctx.Done()
				c.ended <- time.Now()
				return nil
			})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-c.run; err != nil {
			t.Error(err)
		}
	})
	return c
}

func lease(t *testing.T, conn grpc.ClientConnInterface) *coordinationv1.Lease {
	t.Helper()
	l, err := client.For[*coordinationv1.Lease](conn).Get(t.Context(), "kube-system", "test")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOneLeadsAndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gatewaytest.New(t)
		a := contend(t, g.Conn(t), "a")
		<-a.began
		b := contend(t, g.Conn(t), "b")
		time.Sleep(10 * time.Minute)
		if len(b.began) != 0 || len(a.ended) != 0 {
			t.Fatal("the lease moved though its holder is well")
		}
		l := lease(t, g.Conn(t))
		if l.GetSpec().GetHolderIdentity() != "a" || l.GetSpec().GetLeaseDurationSeconds() != 15 || l.GetSpec().GetLeaseTransitions() != 0 {
			t.Errorf("lease %v", l.GetSpec())
		}
		if age := time.Since(l.GetSpec().GetRenewTime().AsTime()); age > 3*time.Second {
			t.Errorf("renewed %s ago", age)
		}
		stopped := time.Now()
		a.stop()
		if wait := (<-b.began).Sub(stopped); wait > time.Second {
			t.Errorf("the next leader waited %s for a released lease", wait)
		}
		l = lease(t, g.Conn(t))
		if l.GetSpec().GetHolderIdentity() != "b" || l.GetSpec().GetLeaseTransitions() == 0 {
			t.Errorf("lease %v", l.GetSpec())
		}
	})
}

func TestDeadLeaderIsReplacedAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gatewaytest.New(t)
		dead := g.Conn(t)
		a := contend(t, dead, "a")
		<-a.began
		b := contend(t, g.Conn(t), "b")
		synctest.Wait()
		died := time.Now()
		_ = dead.Close() // a is alive but cut off.
		took := (<-b.began).Sub(died)
		if took < 13*time.Second || took > 20*time.Second {
			t.Errorf("taken over after %s, want about 15s", took)
		}
		fenced := (<-a.ended).Sub(died)
		if fenced > 10*time.Second {
			t.Errorf("a was told to stop after %s, want 10s at most", fenced)
		}
		if fenced >= took {
			t.Error("two led at a time")
		}
	})
}

func TestLeadsAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gatewaytest.New(t)
		a := contend(t, g.Conn(t), "a")
		<-a.began
		// A short outage is survived.
		g.Down()
		time.Sleep(5 * time.Second)
		g.Up()
		time.Sleep(time.Minute)
		if len(a.ended) != 0 {
			t.Error("5 s without a gateway ended the lead")
		}
		g.Down()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(a.ended) != 1 {
			t.Error("a leads on without a gateway")
		}
		g.Up()
		<-a.began
	})
}

func TestUsurpedLeaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gatewaytest.New(t)
		a := contend(t, g.Conn(t), "a")
		<-a.began
		l := lease(t, g.Conn(t))
		l.Spec.HolderIdentity = proto.String("usurper")
		g.Put(l)
		usurped := time.Now()
		if wait := (<-a.ended).Sub(usurped); wait > 3*time.Second {
			t.Errorf("a led on for %s", wait)
		}
		// An edit that leaves the holder alone ends nothing.
		<-a.began
		l = lease(t, g.Conn(t))
		l.Metadata.Labels = map[string]string{"edited": "yes"}
		g.Put(l)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(a.ended) != 0 {
			t.Error("an edit of a label ended the lead")
		}
	})
}

func TestLeadEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gatewaytest.New(t)
		conn := g.Conn(t)
		config := leader.Config{Name: "test", Identity: "a", Logger: quiet}
		broken := errors.New("broken")
		var terms []*coordinationv1.LeaseClaim
		if err := leader.Run(t.Context(), config, conn, func(_ context.Context, term *coordinationv1.LeaseClaim) error {
			terms = append(terms, term)
			return broken
		}); !errors.Is(err, broken) {
			t.Errorf("Run = %v", err)
		}
		if holder := lease(t, conn).GetSpec().GetHolderIdentity(); holder != "" {
			t.Errorf("%q holds the lease still", holder)
		}
		err := leader.Run(t.Context(), config, conn, func(_ context.Context, term *coordinationv1.LeaseClaim) error {
			terms = append(terms, term)
			panic("poison")
		})
		if err == nil || !strings.Contains(err.Error(), "poison") {
			t.Errorf("Run = %v", err)
		}
		if len(terms) != 2 || terms[0].GetHolderIdentity() != "a" || terms[0].GetLeaseTransitions() == terms[1].GetLeaseTransitions() {
			t.Errorf("terms %v, want two of a that can be told apart", terms)
		}
	})
}

func TestLeaseIsHeldWhileLeadWindsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gatewaytest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		conn, began, ended := g.Conn(t), make(chan bool), make(chan error, 1)
		go func() {
			ended <- leader.Run(ctx, leader.Config{Name: "test", Identity: "a", Logger: quiet}, conn,
				func(ctx context.Context, _ *coordinationv1.LeaseClaim) error {
					close(began)
					<-ctx.Done()
					time.Sleep(time.Minute)
					return nil
				})
		}()
		<-began
		b := contend(t, g.Conn(t), "b")
		cancel()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(b.began) != 0 {
			t.Error("another began before the first had ended")
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-b.began
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, config := range []leader.Config{
		{Identity: "a"},
		{Name: "test"},
		{Name: "test", Identity: "a", LeaseDuration: 5 * time.Second},
		{Name: "test", Identity: "a", RetryPeriod: 9 * time.Second},
	} {
		if config.Validate() == nil {
			t.Errorf("%+v is accepted", config)
		}
	}
	if err := (leader.Config{Name: "test", Identity: "a"}).Validate(); err != nil {
		t.Error(err)
	}
}
