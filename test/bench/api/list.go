package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/test/bench/internal/measure"
)

// warmLists come before those that are timed, until the client has its memory.
const warmLists = 4

// list measures lists of all pods: decoded by the client library, and as bytes only, which is the gateway and the wire.
func (d *driver) list(ctx context.Context, results *measure.Results) error {
	pods := client.For[*corev1.Pod](d.conn)
	if os.Getenv("GOGC") == "" {
		// A list is all there is in this process, and each is thrown away: less memory that comes round sooner is quicker.
		defer debug.SetGCPercent(debug.SetGCPercent(100))
	}
	decodeList := func() error {
		l, err := pods.List(ctx, client.ListOptions{Namespace: d.run})
		if err == nil && len(l.Items) != d.pods {
			err = fmt.Errorf("listed %d pods of %d", len(l.Items), d.pods)
		}
		return err
	}
	for range warmLists {
		if err := decodeList(); err != nil {
			return err
		}
	}
	decoded, err := d.median(decodeList)
	if err != nil {
		return err
	}
	bytes, err := d.median(func() error { return d.drainList(ctx) })
	if err != nil {
		return err
	}
	before := time.Duration(0)
	if d.pid != 0 {
		if before, err = measure.ProcessorTime(d.pid); err != nil {
			return err
		}
	}
	const rounds = 30
	for range rounds {
		if err := d.drainList(ctx); err != nil {
			return err
		}
	}
	results.Add("api.list_11k_client_ms", decoded, "ms", 0)
	results.Add("api.list_11k_bytes_ms", bytes, "ms", 0)
	if d.pid != 0 {
		after, err := measure.ProcessorTime(d.pid)
		if err != nil {
			return err
		}
		results.Add("api.list_11k_server_ms", float64((after-before).Microseconds())/1000/rounds, "ms", 0)
	}
	return nil
}

func (d *driver) median(do func() error) (float64, error) {
	var times []float64
	for range d.lists {
		begin := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(begin).Microseconds())/1000)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// drainList receives a list without decoding it.
func (d *driver) drainList(ctx context.Context) error {
	stream, err := d.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, corev1.PodService_List_FullMethodName, grpc.ForceCodecV2(discard{encoding.GetCodecV2("proto")}))
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(&metav1.ListRequest{Namespace: d.run}), stream.CloseSend()); err != nil {
		return err
	}
	for {
		if err := stream.RecvMsg(nil); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// discard drops what comes in.
type discard struct{ encoding.CodecV2 }

func (discard) Unmarshal(mem.BufferSlice, any) error { return nil }
