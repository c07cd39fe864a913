package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

// BenchmarkList lists 11,000 pods, decoded by the client and as bytes that nobody decodes.
func BenchmarkList(b *testing.B) {
	s := apitest.New(b)
	pods := client.For[*corev1.Pod](s.Conn())
	const n = 11000
	for i := range n {
		if _, err := pods.Create(b.Context(), newPod(fmt.Sprint("p", i), nil)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("decoded", func(b *testing.B) {
		for range b.N {
			l, err := pods.List(b.Context(), client.ListOptions{})
			if err != nil || len(l.Items) != n {
				b.Fatal(len(l.Items), err)
			}
		}
	})
	b.Run("bytes", func(b *testing.B) {
		for range b.N {
			stream, err := s.Conn().NewStream(b.Context(), &grpc.StreamDesc{ServerStreams: true}, corev1.PodService_List_FullMethodName,
				grpc.ForceCodecV2(discard{encoding.GetCodecV2("proto")}))
			if err == nil {
				err = errors.Join(stream.SendMsg(&metav1.ListRequest{}), stream.CloseSend())
			}
			for err == nil {
				err = stream.RecvMsg(nil)
			}
			if !errors.Is(err, io.EOF) {
				b.Fatal(err)
			}
		}
	})
}

// discard drops what comes in.
type discard struct{ encoding.CodecV2 }

func (discard) Unmarshal(mem.BufferSlice, any) error { return nil }
