package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"trireme.dev/client"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/apitest"
)

// collector takes spans and throws them away.
func collector(b *testing.B) string {
	b.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return s.SendMsg(&emptypb.Empty{})
	}))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	b.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return "http://" + lis.Addr().String()
}

// eachTelemetry runs a benchmark without telemetry, with metrics, and with tracing of 1% and of all new objects.
func eachTelemetry(b *testing.B, run func(b *testing.B)) {
	measured := func(b *testing.B) {
		before := processorTime(b)
		run(b)
		b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	}
	b.Run("off", measured)
	for _, c := range []struct{ name, ratio string }{{"metrics", ""}, {"trace-1%", "0.01"}, {"trace-100%", "1"}} {
		b.Run(c.name, func(b *testing.B) {
			if c.ratio != "" {
				b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector(b))
				b.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
				b.Setenv("OTEL_TRACES_SAMPLER_ARG", c.ratio)
			}
			process, err := telemetry.Start(b.Context(), telemetry.Config{}, "apiserver", apitest.TraceRoot, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				b.ReportMetric(float64(process.SpansDropped())/float64(b.N), "dropped/op")
				process.Stop()
			})
			measured(b)
		})
	}
}

// processorTime of this process so far. Unlike the time of the clock it means something on a machine that does other work;
// client, gateway and a store in memory are in it.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkCreate is a create of a pod through the whole gateway, on a store in memory, 16 callers at a time.
func BenchmarkCreate(b *testing.B) {
	eachTelemetry(b, func(b *testing.B) {
		pods := client.For[*corev1.Pod](apitest.New(b).Conn())
		var n atomic.Int64
		b.SetParallelism(8)
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := pods.Create(context.Background(), newPod(fmt.Sprintf("p%d", n.Add(1)), nil)); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.StopTimer()
	})
}

// BenchmarkWatch is one change of a pod, seen by 50 watchers.
func BenchmarkWatch(b *testing.B) {
	const watchers = 50
	eachTelemetry(b, func(b *testing.B) {
		pods := client.For[*corev1.Pod](apitest.New(b).Conn())
		seen := make(chan struct{}, watchers)
		for range watchers {
			w, err := pods.Watch(b.Context(), client.WatchOptions{})
			if err != nil {
				b.Fatal(err)
			}
			go func() {
				for {
					r, err := w.Recv()
					if err != nil {
						return // the benchmark is over
					}
					for range r.Events {
						seen <- struct{}{}
					}
				}
			}()
		}
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			if _, err := pods.Create(context.Background(), newPod(fmt.Sprintf("p%d", i), nil)); err != nil {
				b.Fatal(err)
			}
			for range watchers {
				<-seen
			}
		}
		b.StopTimer()
	})
}
