package client

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that ours stands in front of
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// rawMessage is a message that is received and not yet decoded; whoever has decoded it frees it.
type rawMessage struct{ mem.Buffer }

// codec is protobuf's, but for two things: it hands out rawMessages as bytes, so that a stream goes on while they are
// decoded, and it decodes with generated code what has some.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *rawMessage:
		m.Buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	case proto.Message:
		b := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer b.Free()
		return unmarshal(b.ReadOnlyData(), m)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// unmarshal decodes into an empty message and copies what that keeps. Messages made from a descriptor have no generated code.
func unmarshal(b []byte, m proto.Message) error {
	if generated, ok := m.(interface{ UnmarshalVT(b []byte) error }); ok {
		return generated.UnmarshalVT(b)
	}
	return proto.Unmarshal(b, m)
}
