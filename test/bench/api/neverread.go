package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// readAtLast is how long those that never read do at the end, to learn what has become of them.
const readAtLast = 3 * time.Second

// neverReading opens watches of all pods that nobody reads, beside those that are measured. stop reads them at last and says
// on stderr how many the gateway had ended; the others it held, at the cost of what fits into their windows.
func (d *driver) neverReading(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var streams []grpc.ClientStream
	stop = func() {
		defer cancel()
		var wg sync.WaitGroup
		var ended atomic.Int64
		late := time.AfterFunc(readAtLast, cancel)
		defer late.Stop()
		for _, s := range streams {
			wg.Go(func() {
				var err error
				for err == nil {
					err = s.RecvMsg(&emptypb.Empty{}) // what is unknown to it is skipped
				}
				if apierr.IsConflict(apierr.FromStatus(err)) {
					ended.Add(1)
				}
			})
		}
		wg.Wait()
		fmt.Fprintf(os.Stderr, "of %d watchers that never read the gateway has ended %d\n", d.neverRead, ended.Load())
	}
	for range d.neverRead {
		conn, err := d.dial()
		if err != nil {
			return stop, err
		}
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, corev1.PodService_Watch_FullMethodName)
		if err == nil {
			err = errors.Join(stream.SendMsg(&metav1.WatchRequest{}), stream.CloseSend())
		}
		if err != nil {
			return stop, err
		}
		streams = append(streams, stream)
	}
	return stop, nil
}
