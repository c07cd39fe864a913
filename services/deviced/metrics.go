package deviced

import (
	"context"
	"errors"
	"fmt"

	"trireme.dev/client/metrics"
)

// metrics show to who reads them how many devices there are, until ctx ends.
func (d *Deviced) metrics(ctx context.Context) error {
	metrics.UntilDone(ctx, metrics.Gauge("trireme_devices", "Devices found, by resource and health.", func(report func(float64, ...string)) {
		type line struct{ resource, health string }
		counts := map[line]int{} // several folders of plugins may be offered the same resource
		for _, pool := range d.pools {
			counts[line{pool.Resource, "healthy"}] += 0
			counts[line{pool.Resource, "unhealthy"}] += 0
			found, _ := pool.Devices()
			for _, device := range found {
				if device.Unhealthy == "" {
					counts[line{pool.Resource, "healthy"}]++
				} else {
					counts[line{pool.Resource, "unhealthy"}]++
				}
			}
		}
		for l, n := range counts {
			report(float64(n), "resource", l.resource, "health", l.health)
		}
	}))
	return nil
}

// Ready says whether every plugin is registered, or listens and waits for an agent.
func (d *Deviced) Ready() error {
	var errs []error
	for _, p := range d.plugins {
		if !p.Serving() {
			errs = append(errs, fmt.Errorf("the plugin of %s does not listen at %s", p.Pool().Resource, p.Endpoint()))
		}
	}
	return errors.Join(errs...)
}
