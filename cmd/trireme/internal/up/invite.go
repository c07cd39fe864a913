package up

import (
	"context"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client/jointoken"
	"trireme.dev/cmd/trireme/internal/join"
	"trireme.dev/kit/loop"
)

// inviteNodes makes a token, where other machines can reach the gateway. What goes wrong costs the line and nothing else.
func (c *cluster) inviteNodes(ctx context.Context, conn grpc.ClientConnInterface) {
	if host, _, err := net.SplitHostPort(c.gateway); err != nil || net.ParseIP(host).IsLoopback() {
		return
	}
	created, err := join.Create(ctx, conn, jointoken.DefaultTTL, "made by trireme up")
	if err != nil {
		c.progress.step("no token for nodes that join: %v", err)
		return
	}
	c.invitation = created.Line()
}

const (
	// renewal is the name of the task that renews certificates, beside those of services.
	renewal = "certificates"
	// renewPeriod is short against the third of a certificate's life in which it is renewed.
	renewPeriod = 12 * time.Hour
)

// startRenewal keeps the certificates of a cluster that is up for longer than they are valid. The services read them again.
func (c *cluster) startRenewal(ctx context.Context) {
	if c.renew == nil {
		return
	}
	run := &supervised{done: make(chan struct{})}
	ctx, run.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.running[renewal] = run
	go func() {
		defer close(run.done)
		cfg := loop.Config{Name: "renew certificates", Period: renewPeriod, Delay: renewPeriod, Logger: slog.New(slog.DiscardHandler)}
		// Every returns an error for a period of zero only.
		_ = loop.Every(ctx, cfg, func(context.Context) error {
			if err := c.renew(); err != nil {
				c.progress.step("certificates are not renewed: %v", err)
			}
			return nil
		})
	}()
}
