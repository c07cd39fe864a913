package client

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that ours stands in front of
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// rawMessage is a message that is received and not yet decoded.
type rawMessage []byte

// codec is protobuf's, but for two things: it hands out rawMessages as bytes, so that a stream goes on while they are
// decoded, and it decodes with generated code what has some.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*rawMessage); ok {
		*raw = data.Materialize()
		return nil
	}
	if m, ok := v.(proto.Message); ok {
		// Decoding copies what it keeps.
		b := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer b.Free()
		return unmarshal(b.ReadOnlyData(), m)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// unmarshal decodes into an empty message. Messages made from a descriptor have no generated code.
func unmarshal(b []byte, m proto.Message) error {
	if generated, ok := m.(interface{ UnmarshalVT(b []byte) error }); ok {
		return generated.UnmarshalVT(b)
	}
	return proto.Unmarshal(b, m)
}
