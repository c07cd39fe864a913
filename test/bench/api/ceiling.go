package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	ceilingTime  = 3 * time.Second
	ceilingBatch = 16
	eventBytes   = 1200
)

// ceilings are what streams of gRPC carry with nothing behind them, client and server together on this machine.
type ceilings struct{ single, batched float64 }

func measureCeilings(ctx context.Context, watchers int) (c ceilings, err error) {
	if c.single, err = streamRate(ctx, watchers, 1); err != nil {
		return c, err
	}
	c.batched, err = streamRate(ctx, watchers, ceilingBatch)
	return c, err
}

// streamRate returns the events a second of so many streams, batch by batch: bytes, without TLS, which nobody decodes.
func streamRate(ctx context.Context, streams, batch int) (float64, error) {
	message := wrapperspb.Bytes(make([]byte, batch*eventBytes))
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		for {
			if err := s.SendMsg(message); err != nil {
				return err
			}
		}
	}))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(lis) }()
	ctx, cancel := context.WithCancel(ctx)
	var count atomic.Int64
	var wg sync.WaitGroup
	for range streams {
		conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
		if err != nil {
			cancel()
			return 0, err
		}
		defer conn.Close()
		wg.Go(func() {
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/bench.Raw/Stream")
			for err == nil {
				into := &wrapperspb.BytesValue{}
				if err = stream.RecvMsg(into); err == nil {
					count.Add(int64(batch))
				}
			}
		})
	}
	time.Sleep(ceilingTime / 3) // connections and windows come up
	before, begin := count.Load(), time.Now()
	time.Sleep(ceilingTime)
	rate := float64(count.Load()-before) / time.Since(begin).Seconds()
	cancel()
	wg.Wait()
	srv.Stop()
	if rate == 0 {
		return 0, fmt.Errorf("raw streams carried nothing: %w", errors.Join(<-ended))
	}
	return rate, <-ended
}
