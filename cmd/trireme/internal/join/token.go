package join

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/jointoken"
	"trireme.dev/kit/pki"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

// manager names this program in what it writes.
const manager = "trireme"

// Created is a new token, and where it can be used.
type Created struct {
	jointoken.Token
	// Addresses of the gateway, the likeliest first.
	Addresses []string
}

// Line is the command by which a machine joins.
func (c Created) Line() string {
	address := "ADDRESS:7443"
	if len(c.Addresses) > 0 {
		address = c.Addresses[0]
	}
	return fmt.Sprintf("trireme node join %s --token %s", address, c.Token)
}

// Create makes a token by a connection that proves who the gateway is. A ttl of zero means that it never ends. Tokens that
// have ended are removed on the way.
func Create(ctx context.Context, conn grpc.ClientConnInterface, ttl time.Duration, description string) (Created, error) {
	info, err := nodev1.NewJoinServiceClient(conn).GetClusterInfo(ctx, &nodev1.GetClusterInfoRequest{})
	if err != nil {
		return Created{}, apierr.FromStatus(err)
	}
	ca, err := pki.ParseCertificate(info.GetCaCertificate())
	if err != nil {
		return Created{}, fmt.Errorf("the cluster's CA: %w", err)
	}
	created := Created{Token: jointoken.New(pki.Pin(ca)), Addresses: info.GetAddresses()}
	stored := jointoken.Stored{Token: created.Token, Description: description, Joins: true}
	if ttl > 0 {
		stored.Expires = time.Now().Add(ttl)
	}
	if _, err := secrets(conn).Create(ctx, stored.Object()); err != nil {
		return Created{}, err
	}
	old, err := List(ctx, conn)
	if err != nil {
		return Created{}, err
	}
	for _, t := range old {
		if !t.Expired(time.Now()) {
			continue
		}
		if err := Delete(ctx, conn, t.ID); err != nil && !apierr.IsNotFound(err) {
			return Created{}, err
		}
	}
	return created, nil
}

// List returns the tokens there are. Secrets that are none, though they have the type, are left out.
func List(ctx context.Context, conn grpc.ClientConnInterface) ([]jointoken.Stored, error) {
	list, err := secrets(conn).List(ctx, client.ListOptions{Namespace: jointoken.Namespace, FieldSelector: "type=" + jointoken.SecretType})
	if err != nil {
		return nil, err
	}
	var out []jointoken.Stored
	for _, s := range list.Items {
		if t, err := jointoken.FromSecret(s); err == nil {
			out = append(out, t)
		}
	}
	return out, nil
}

// Delete removes a token by its ID.
func Delete(ctx context.Context, conn grpc.ClientConnInterface, id string) error {
	if !jointoken.ValidID(id) {
		return errors.New("want the ID of a token: its first six letters, as `trireme token list` shows them")
	}
	_, err := secrets(conn).Delete(ctx, jointoken.Namespace, jointoken.SecretName(id), nil)
	return err
}

func secrets(conn grpc.ClientConnInterface) *client.Resource[*corev1.Secret] {
	return client.For[*corev1.Secret](conn).With(&metav1.WriteOptions{FieldManager: manager})
}
