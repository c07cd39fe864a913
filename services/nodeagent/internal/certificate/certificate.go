// Package certificate keeps the node's certificate from running out: in the last third of its life it has the gateway sign
// the next one. kit/rpc reads the file again, so nothing is restarted.
//
// It owns that one file, which holds certificate and key. It never makes a first certificate; joining does.
package certificate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/telemetry"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

const (
	period      = time.Hour
	callTimeout = 10 * time.Second
)

// Keeper renews one file.
type Keeper struct {
	conn   grpc.ClientConnInterface
	file   string
	logger *slog.Logger
}

// New returns a keeper of a file with a certificate and its key, by a connection that uses it.
func New(conn grpc.ClientConnInterface, file string, logger *slog.Logger) *Keeper {
	return &Keeper{conn: conn, file: file, logger: logger}
}

// Run looks every hour, until ctx ends. A gateway that is away for long costs nothing: months are left.
func (k *Keeper) Run(ctx context.Context) error {
	return loop.Every(ctx, loop.Config{Name: "renew certificate", Period: period, Jitter: 0.1, Logger: k.logger}, k.renew)
}

func (k *Keeper) renew(ctx context.Context) error {
	have, err := pki.ReadCertificate(k.file)
	if err != nil {
		return err
	}
	if !pki.Due(have) {
		return nil
	}
	request, key, err := pki.NewRequest(pki.Identity{
		CommonName: have.Subject.CommonName, Organizations: have.Subject.Organization, DNSNames: have.DNSNames, IPs: have.IPAddresses,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := nodev1.NewJoinServiceClient(k.conn).Renew(ctx, &nodev1.RenewRequest{CertificateRequest: request})
	if err != nil {
		return fmt.Errorf("certificate %s, which ends at %s, is not renewed: %w", k.file, have.NotAfter.UTC().Format(time.RFC3339), apierr.FromStatus(err))
	}
	if err := pki.SaveBundle(k.file, answer.GetCertificate(), key); err != nil {
		return err
	}
	next, err := pki.ParseCertificate(answer.GetCertificate())
	if err != nil {
		return err
	}
	k.logger.LogAttrs(ctx, slog.LevelInfo, "certificate renewed",
		slog.String(telemetry.KeyPath, k.file), slog.Time("until", next.NotAfter))
	return nil
}
