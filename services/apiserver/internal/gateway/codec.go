package gateway

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that raw stands in front of
	"google.golang.org/grpc/mem"
)

// frame is a message as bytes.
type frame []byte

// frames is a message as bytes in parts.
type frames [][]byte

// codec passes frames through and leaves real messages (health, reflection) to protobuf. It goes by protobuf's name, so
// clients notice nothing.
type codec struct{ proto encoding.CodecV2 }

// Codec returns the codec to force on the server.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Name() string { return "proto" }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch f := v.(type) {
	case frame:
		return mem.BufferSlice{mem.SliceBuffer(f)}, nil
	case frames:
		// One allocation for all: the pointers are what the interface values hold.
		buffers, out := make([]mem.SliceBuffer, len(f)), make(mem.BufferSlice, len(f))
		for i, part := range f {
			buffers[i] = part
			out[i] = &buffers[i]
		}
		return out, nil
	}
	return c.proto.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		*f = data.Materialize()
		return nil
	}
	if v == nil {
		return fmt.Errorf("unmarshal into nothing")
	}
	return c.proto.Unmarshal(data, v)
}
