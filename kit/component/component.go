// Package component owns what a process of the control plane tells of itself: its Component, which it keeps up to date
// while it runs and takes away when it stops. It never judges: whoever reads the objects does (`trireme status`).
package component

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/informer"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/telemetry"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	// Period between two heartbeats, lengthened at random by up to a tenth.
	Period = 10 * time.Second
	jitter = 0.1
	// Silent is after how long without a heartbeat a component counts as gone: four heartbeats and some.
	Silent = 45 * time.Second
	// goodbye bounds the deletion of the object when the process stops.
	goodbye = time.Second
)

// Config says what is published.
type Config struct {
	// Component is the service's name: apiserver, scheduler, controller. Required.
	Component string
	// Instance tells processes of the same service apart; see Instance. Required.
	Instance string
	// Address at which the process serves; empty where on a socket only.
	Address string
	// Leader tells whether the process holds its lease; nil where it needs none and no one asks.
	Leader func() bool
	// Errors that the process logs; nil for none.
	Errors *Errors
	// Logger; nil means slog.Default.
	Logger *slog.Logger
}

// Publisher keeps one Component. Make it with New, and Run it once.
type Publisher struct {
	cfg      Config
	name     string
	objects  *client.Resource[*componentv1.Component]
	informer *informer.Factory
	base     *componentv1.ComponentStatus

	wake    chan struct{}
	beating sync.Mutex

	mu       sync.Mutex
	sent     time.Time     // when the last heartbeat was written
	shown    bool          // the watch has shown it
	lag      time.Duration // of the last one that was shown
	measured bool
	failing  bool
}

// New returns a publisher over a connection to the gateway.
func New(conn grpc.ClientConnInterface, cfg Config) *Publisher {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	p := &Publisher{
		cfg: cfg, name: Name(cfg.Component, cfg.Instance),
		objects:  client.For[*componentv1.Component](conn),
		informer: informer.NewFactory(conn, cfg.Logger),
		base:     Status(time.Now(), nil),
		wake:     make(chan struct{}, 1),
	}
	if cfg.Address != "" {
		p.base.Address = proto.String(cfg.Address)
	}
	own := informer.Of[*componentv1.Component](p.informer, informer.Config{FieldSelector: "metadata.name=" + p.name})
	own.AddHandler(informer.Handler[*componentv1.Component]{
		Add:    func(c *componentv1.Component, _ bool) { p.seen(c) },
		Update: func(_, c *componentv1.Component) { p.seen(c) },
	})
	return p
}

// Status is what every process can say of itself, as of now. started is when it began to work.
func Status(started time.Time, errs *Errors) *componentv1.ComponentStatus {
	s := &componentv1.ComponentStatus{
		Version: proto.String(telemetry.Version()), Pid: proto.Int64(int64(os.Getpid())),
		StartedAt: timestamppb.New(started), HeartbeatAt: now(), LastError: errs.Last(),
		SpansDropped: proto.Int64(telemetry.SpansDropped()),
	}
	if host, err := os.Hostname(); err == nil {
		s.Host = proto.String(host)
	}
	return s
}

// now in the precision that is stored.
func now() *timestamppb.Timestamp { return timestamppb.New(time.Now().Truncate(time.Microsecond)) }

var notInNames = regexp.MustCompile(`[^a-z0-9.-]+`)

// Name of the object of an instance.
func Name(component, instance string) string {
	name := notInNames.ReplaceAllString(strings.ToLower(component+"-"+instance), "-")
	return strings.Trim(name, "-.")
}

// Instance tells this process from others of its service, and stays the same when it is started again: the host and where
// it listens, a TCP address or else a socket. Without either it is the host and the pid.
func Instance(address, socket string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	if socket != "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(socket)) // it never fails
		return fmt.Sprintf("%s-%08x", host, h.Sum32())
	}
	if _, port, err := net.SplitHostPort(address); err == nil {
		return host + "-" + port
	}
	return host + "-" + strconv.Itoa(os.Getpid())
}

// Wake makes the next heartbeat come at once, because something that it tells has changed. It never blocks, and does
// nothing on a nil Publisher.
func (p *Publisher) Wake() {
	if p == nil {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends, then deletes the object. A gateway that does not answer is no failure: the next heartbeat
// tries again.
func (p *Publisher) Run(ctx context.Context) error {
	defer p.leave(ctx)
	return daemon.Run(ctx,
		daemon.Task{Name: "own component", Run: p.informer.Run},
		daemon.Task{Name: "heartbeat", Run: func(ctx context.Context) error {
			every := loop.Config{Name: "heartbeat", Period: Period, Jitter: jitter, Logger: p.cfg.Logger}
			return loop.Every(ctx, every, func(ctx context.Context) error {
				p.report(ctx, p.beat(ctx))
				return nil
			})
		}},
		daemon.Task{Name: "news", Run: func(ctx context.Context) error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-p.wake:
					p.report(ctx, p.beat(ctx))
				}
			}
		}},
	)
}

// beat writes the status once.
func (p *Publisher) beat(ctx context.Context) error {
	p.beating.Lock()
	defer p.beating.Unlock()
	ctx, cancel := context.WithTimeout(ctx, Period)
	defer cancel()
	c := &componentv1.Component{Metadata: &metav1.ObjectMeta{Name: p.name}, Status: p.status()}
	_, err := p.objects.UpdateStatus(ctx, c)
	if !apierr.IsNotFound(err) {
		return err
	}
	_, err = p.objects.Create(ctx, &componentv1.Component{
		Metadata: &metav1.ObjectMeta{Name: p.name},
		Spec:     &componentv1.ComponentSpec{Component: proto.String(p.cfg.Component)},
	})
	if err != nil && !apierr.IsAlreadyExists(err) {
		return err
	}
	c.Status = p.status()
	_, err = p.objects.UpdateStatus(ctx, c)
	return err
}

func (p *Publisher) status() *componentv1.ComponentStatus {
	s := proto.CloneOf(p.base)
	s.HeartbeatAt, s.LastError = now(), p.cfg.Errors.Last()
	s.SpansDropped = proto.Int64(telemetry.SpansDropped())
	if p.cfg.Leader != nil {
		s.Leader = proto.Bool(p.cfg.Leader())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if lag, ok := p.lagging(); ok {
		s.Lag = proto.String(lag.Round(100 * time.Microsecond).String())
	}
	p.sent, p.shown = s.GetHeartbeatAt().AsTime(), false
	return s
}

// lagging is how long the last heartbeat took to show, or, where it has not been shown yet, how long it has taken so far.
func (p *Publisher) lagging() (time.Duration, bool) {
	if !p.sent.IsZero() && !p.shown && p.measured {
		return time.Since(p.sent), true
	}
	return p.lag, p.measured
}

// seen is told of the object as the watch shows it.
func (p *Publisher) seen(c *componentv1.Component) {
	at := c.GetStatus().GetHeartbeatAt()
	p.mu.Lock()
	defer p.mu.Unlock()
	if at == nil || p.shown || !at.AsTime().Equal(p.sent) {
		return // of an earlier life, or written by somebody else
	}
	if !p.measured {
		p.Wake() // the first measurement is news
	}
	p.lag, p.shown, p.measured = time.Since(p.sent), true, true
}

// report logs the first of a row of failures.
func (p *Publisher) report(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && ctx.Err() == nil && !p.failing {
		p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "heartbeat was not taken", slog.Any(telemetry.KeyError, err))
	}
	p.failing = err != nil
}

// leave takes the object away: a process that stops in good order is not missed.
func (p *Publisher) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if _, err := p.objects.Delete(ctx, "", p.name, nil); err != nil && !apierr.IsNotFound(err) {
		p.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "own component stays behind", slog.Any(telemetry.KeyError, err))
	}
}
