// Package leader elects one of several equal processes by a Lease object: the holder renews it, and whoever sees it
// not renewed for the lease's duration takes it over. Time is measured on the observer's own clock, from the moment at
// which it saw the lease change, so that clocks need not agree.
//
// It never decides what leading means. A leader that sleeps for longer than its lease learns only afterwards that it has
// been replaced; writes that must not happen then name its term, a LeaseClaim, and the gateway refuses them.
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/metrics"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Config of an election. A zero field takes its default.
type Config struct {
	// Name of the Lease: what is being led. Required.
	Name string
	// Identity of this candidate, unique among them. Required.
	Identity string
	// Namespace of the Lease. kube-system.
	Namespace string
	// LeaseDuration for which others keep away from a lease that is not renewed. 15 s.
	LeaseDuration time.Duration
	// RenewDeadline after which a leader that cannot renew stops leading; shorter than LeaseDuration, so that it has
	// stopped before another begins. 10 s.
	RenewDeadline time.Duration
	// RetryPeriod between tries to take or renew the lease. 2 s.
	RetryPeriod time.Duration
	// Logger; nil means slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = "kube-system"
	}
	if c.LeaseDuration == 0 {
		c.LeaseDuration = 15 * time.Second
	}
	if c.RenewDeadline == 0 {
		c.RenewDeadline = 10 * time.Second
	}
	if c.RetryPeriod == 0 {
		c.RetryPeriod = 2 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = c.Logger.With(slog.String("lease", c.Name), slog.String("identity", c.Identity))
	return c
}

// Validate names all that is wrong.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("leader: a name is required"))
	}
	if c.Identity == "" {
		errs = append(errs, errors.New("leader: an identity is required"))
	}
	if c.LeaseDuration <= c.RenewDeadline || c.LeaseDuration < time.Second {
		errs = append(errs, errors.New("leader: the lease must last longer than the renew deadline and at least 1 s"))
	}
	// The pause between tries is lengthened at random by up to a fifth.
	if c.RenewDeadline <= c.RetryPeriod*jitterNumerator/jitterDenominator {
		errs = append(errs, errors.New("leader: the renew deadline must be longer than 1.2 retry periods"))
	}
	return errors.Join(errs...)
}

const jitterNumerator, jitterDenominator = 6, 5

// Run contends for the lease and calls lead while holding it, with the term for which it does. lead's ctx ends with ctx, and when the lease could not be
// renewed within the deadline; lead must return soon then, for another may begin. After such a loss, once lead has
// returned, Run contends again. Otherwise Run ends with lead, or with ctx, releases the lease so that the next leader
// need not wait, and returns lead's error.
func Run(ctx context.Context, config Config, conn grpc.ClientConnInterface, lead func(context.Context, *coordinationv1.LeaseClaim) error) error {
	if err := config.Validate(); err != nil {
		return err
	}
	c := &candidate{config: config.withDefaults(), leases: client.For[*coordinationv1.Lease](conn)}
	var leads atomic.Int64
	defer metrics.Gauge("leader_election_master_status", "Whether this process holds the lease: 1 where it does, 0 where it stands by.",
		func(report func(float64, ...string)) { report(float64(leads.Load()), "name", c.config.Name) })()
	for {
		if !c.acquire(ctx) {
			return nil
		}
		c.config.Logger.Info("began leading")
		leads.Store(1)
		lost, err := c.hold(ctx, lead)
		leads.Store(0)
		if !lost {
			c.release(ctx)
			c.config.Logger.Info("stopped leading")
			return err
		}
		c.config.Logger.Warn("lost the lease", slog.Any("error", err))
	}
}

type candidate struct {
	config Config
	leases *client.Resource[*coordinationv1.Lease]

	// held is the lease as last written by this candidate.
	held *coordinationv1.Lease
	// renewed is when the write of held began: others count from later.
	renewed time.Time
	// seen is the lease of another as first seen in its present version, and since when.
	seen      *coordinationv1.Lease
	seenSince time.Time
	complains bool
}

// acquire waits for the lease; false means that ctx ended.
func (c *candidate) acquire(ctx context.Context) bool {
	watching, stop := context.WithCancel(ctx)
	released := make(chan struct{}, 1)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	watched := false
	for ctx.Err() == nil {
		err := c.tryAcquire(ctx)
		if err == nil {
			c.complains = false
			return true
		}
		c.complain(ctx, err)
		if errors.Is(err, errHeld) && !watched {
			watched = true
			watch.Go(func() { c.watchRelease(watching, released) })
		}
		timer := time.NewTimer(lengthened(c.config.RetryPeriod))
		select {
		case <-timer.C:
		case <-released:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}

// watchRelease tells of every moment at which nobody holds the lease, so that the next leader begins when one gives up
// and not with its next try. The tries go on beside it: a holder that dies tells nobody.
func (c *candidate) watchRelease(ctx context.Context, released chan<- struct{}) {
	for ctx.Err() == nil {
		w, err := c.leases.Watch(ctx, client.WatchOptions{
			Namespace: c.config.Namespace, FieldSelector: "metadata.name=" + c.config.Name,
		})
		for err == nil {
			var response *client.Response[*coordinationv1.Lease]
			if response, err = w.Recv(); err != nil {
				w.Close()
				break
			}
			for _, e := range response.Events {
				if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED || e.Object.GetSpec().GetHolderIdentity() == "" {
					select {
					case released <- struct{}{}:
					default:
					}
				}
			}
		}
		// The tries complain of a gateway that does not answer.
		pause(ctx, c.config.RetryPeriod)
	}
}

// complain logs the first of a row of failures.
func (c *candidate) complain(ctx context.Context, err error) {
	if errors.Is(err, errHeld) || ctx.Err() != nil {
		c.complains = false
		return
	}
	if !c.complains {
		c.config.Logger.Warn("cannot take the lease", slog.Any("error", err))
	}
	c.complains = true
}

var errHeld = errors.New("another holds the lease")

func (c *candidate) tryAcquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.RenewDeadline)
	defer cancel()
	begun := time.Now()
	found, err := c.leases.Get(ctx, c.config.Namespace, c.config.Name)
	var taken *coordinationv1.Lease
	switch {
	case apierr.IsNotFound(err):
		taken, err = c.leases.Create(ctx, c.claim(&coordinationv1.Lease{
			Metadata: &metav1.ObjectMeta{Namespace: c.config.Namespace, Name: c.config.Name},
		}, begun))
	case err != nil:
	case c.mustWait(found):
		return errHeld
	default:
		// The resourceVersion in it makes this fail where another candidate was quicker.
		taken, err = c.leases.Update(ctx, c.claim(found, begun))
	}
	if err != nil {
		return err
	}
	c.held, c.renewed, c.seen = taken, begun, nil
	return nil
}

// mustWait reports whether the lease belongs to another who may still be alive.
func (c *candidate) mustWait(found *coordinationv1.Lease) bool {
	holder := found.GetSpec().GetHolderIdentity()
	if holder == "" || holder == c.config.Identity {
		return false
	}
	now := time.Now()
	if c.seen.GetMetadata().GetResourceVersion() != found.GetMetadata().GetResourceVersion() {
		c.seen, c.seenSince = found, now
	}
	duration := time.Duration(found.GetSpec().GetLeaseDurationSeconds()) * time.Second
	return now.Before(c.seenSince.Add(duration))
}

// claim returns the lease as held by this candidate from now on.
func (c *candidate) claim(lease *coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	lease = proto.CloneOf(lease)
	if lease.Spec == nil {
		lease.Spec = &coordinationv1.LeaseSpec{}
	}
	spec := lease.GetSpec()
	if spec.GetHolderIdentity() != c.config.Identity {
		if lease.GetMetadata().GetResourceVersion() != "" {
			spec.LeaseTransitions = proto.Int32(spec.GetLeaseTransitions() + 1)
		}
		spec.AcquireTime = timestamppb.New(now)
	}
	spec.HolderIdentity = proto.String(c.config.Identity)
	spec.LeaseDurationSeconds = proto.Int32(int32(c.config.LeaseDuration.Round(time.Second) / time.Second))
	spec.RenewTime = timestamppb.New(now)
	return lease
}

// hold runs lead and renews beside it, also while lead winds up after the end of ctx: until it has returned, nobody
// else may begin. lost tells that the lease, not lead or ctx, was what ended it.
func (c *candidate) hold(ctx context.Context, lead func(context.Context, *coordinationv1.LeaseClaim) error) (lost bool, err error) {
	leading, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	term := &coordinationv1.LeaseClaim{
		Namespace: c.config.Namespace, Name: c.config.Name,
		HolderIdentity: c.config.Identity, LeaseTransitions: c.held.GetSpec().GetLeaseTransitions(),
	}
	go func() {
		ended <- c.guarded(func() error { return lead(leading, term) })
	}()
	for {
		renewal, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.renewed.Add(c.config.RenewDeadline))
		renewed := make(chan error, 1)
		var renewing sync.WaitGroup
		renewing.Go(func() { renewed <- c.renew(renewal) })
		select {
		case err = <-ended:
			cancel()
			renewing.Wait()
			return false, err
		case err = <-renewed:
			cancel()
		}
		if err != nil {
			stop()
			return true, errors.Join(err, <-ended)
		}
	}
}

// guarded turns a panic of lead into an error, so that the lease is released and not left to run out.
func (c *candidate) guarded(lead func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("leader %s: panic: %v", c.config.Name, p)
		}
	}()
	return lead()
}

// renew waits for a retry period and renews once; it tries again until ctx, the deadline, ends.
func (c *candidate) renew(ctx context.Context) error {
	var last error
	for {
		pause(ctx, c.config.RetryPeriod)
		if err := ctx.Err(); err != nil {
			return errors.Join(err, last)
		}
		begun := time.Now()
		renewed, err := c.leases.Update(ctx, c.claim(c.held, begun))
		if err == nil {
			c.held, c.renewed = renewed, begun
			return nil
		}
		last = err
		if apierr.IsConflict(err) || apierr.IsNotFound(err) {
			if err := c.recheck(ctx); err != nil {
				return err
			}
		}
	}
}

// recheck looks who changed the lease; an error means that it is no longer held. An edit that left this holder in place
// is no loss, and where the gateway does not answer the deadline decides.
func (c *candidate) recheck(ctx context.Context) error {
	found, err := c.leases.Get(ctx, c.config.Namespace, c.config.Name)
	if apierr.IsNotFound(err) {
		return fmt.Errorf("the lease is gone: %w", err)
	}
	if err == nil && found.GetSpec().GetHolderIdentity() != c.config.Identity {
		return fmt.Errorf("%q holds the lease", found.GetSpec().GetHolderIdentity())
	}
	if err == nil {
		c.held = found
	}
	return nil
}

// release gives the lease up. It is best effort: without it the next leader waits the lease's duration.
func (c *candidate) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.RetryPeriod)
	defer cancel()
	err := c.giveUp(ctx)
	if apierr.IsConflict(err) {
		// A renewal that was cut short may have been stored all the same.
		if err = c.recheck(ctx); err == nil {
			err = c.giveUp(ctx)
		}
	}
	if err != nil {
		c.config.Logger.Warn("cannot release the lease", slog.Any("error", err))
	}
}

func (c *candidate) giveUp(ctx context.Context) error {
	lease := proto.CloneOf(c.held)
	now := timestamppb.Now()
	lease.Spec.HolderIdentity = proto.String("")
	lease.Spec.LeaseDurationSeconds = proto.Int32(1)
	lease.Spec.AcquireTime, lease.Spec.RenewTime = now, now
	_, err := c.leases.Update(ctx, lease)
	return err
}

// pause waits for the period and up to a fifth more, or for ctx.
func pause(ctx context.Context, period time.Duration) {
	timer := time.NewTimer(lengthened(period))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func lengthened(period time.Duration) time.Duration { return period + rand.N(max(period/5, 1)) }
