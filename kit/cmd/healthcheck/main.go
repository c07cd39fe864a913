// Command healthcheck asks a server once whether it serves, and says so by its exit status: for images that have nothing
// but the server in them.
//
//	healthcheck unix:///run/trireme/apiserver.sock   # gRPC health, version 1
//	healthcheck http://127.0.0.1:2379/health         # any answer of 2xx
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"trireme.dev/kit/rpc"
)

const patience = 3 * time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "healthcheck: want one address: unix:///path, or http://host:port/path")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	check := checkGRPC
	if strings.HasPrefix(os.Args[1], "http://") {
		check = checkHTTP
	}
	if err := check(ctx, os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "healthcheck: %s: %v\n", os.Args[1], err)
		cancel()
		os.Exit(1)
	}
}

func checkGRPC(ctx context.Context, address string) error {
	conn, err := rpc.Dial(rpc.ClientConfig{Address: address})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	r, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("it answers %s", r.GetStatus())
	}
	return nil
}

func checkHTTP(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}
