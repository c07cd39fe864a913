// Package nodeimage brings image archives into the store of a node, for `up` and `trireme image load`.
package nodeimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

// chunkSize of what is sent at a time.
const chunkSize = 1 << 20

// Load sends an archive to a node and returns the references that it held. conn leads to the gateway or to the node's
// agent. sent hears how much is on its way; it may be nil.
func Load(ctx context.Context, conn grpc.ClientConnInterface, node, file string, sent func(bytes int64)) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	stream, err := nodev1.NewNodeServiceClient(conn).LoadImage(ctx)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, apierr.FromStatus(err))
	}
	// The first message names the node, so it is sent even where the file is empty.
	request, total := &nodev1.LoadImageRequest{NodeName: node}, int64(0)
	for {
		chunk := make([]byte, chunkSize)
		n, err := io.ReadFull(f, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("load %s: %w", file, err)
		}
		if n == 0 && request.GetNodeName() == "" {
			break
		}
		request.Chunk = chunk[:n]
		// EOF from a send means that the answer is there already, and CloseAndRecv has it.
		if err := stream.Send(request); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("load %s: %w", file, apierr.FromStatus(err))
		}
		request = &nodev1.LoadImageRequest{}
		if total += int64(n); sent != nil {
			sent(total)
		}
	}
	response, err := stream.CloseAndRecv()
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, apierr.FromStatus(err))
	}
	return response.GetImages(), nil
}
