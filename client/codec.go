package client

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that bytesCodec stands in front of
	"google.golang.org/grpc/mem"
)

// rawMessage is a message that is received and not yet decoded.
type rawMessage []byte

// bytesCodec hands received messages out as bytes, so that the stream goes on while they are decoded.
type bytesCodec struct{ encoding.CodecV2 }

func newBytesCodec() bytesCodec { return bytesCodec{encoding.GetCodecV2("proto")} }

// Unmarshal implements encoding.CodecV2.
func (c bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*rawMessage); ok {
		*raw = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
