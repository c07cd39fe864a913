// Package join gives machines the certificates that make them nodes: the first one for a token, each further one for the
// one before. It serves JoinService and signs with the cluster's CA.
//
// It decides who may have which name, and nothing else: what a certificate lets its holder do is decided elsewhere, and the
// Node object is the agent's to make. It reads tokens, nodes and leases from the registry and writes none of them.
package join

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/peer"
	"k8s.io/apimachinery/pkg/util/validation"

	"trireme.dev/client/apierr"
	"trireme.dev/client/jointoken"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/apiserver/internal/registry"
)

const (
	userPrefix     = "system:node:"
	nodesGroup     = "system:nodes"
	leaseNamespace = "kube-node-lease"
	// maxNames bounds a certificate's names: simulated nodes are one agent with one certificate.
	maxNames     = 5000
	maxAddresses = 64
)

// OpenMethods are those that need no client certificate.
func OpenMethods() []string { return []string{nodev1.JoinService_Join_FullMethodName} }

// Deps of a service.
type Deps struct {
	// Objects are where tokens, nodes and leases are read from.
	Objects *registry.Registry
	// CA that signs; nil where this gateway has no key, and then every call says so.
	CA *pki.CA
	// Own is the gateway's certificate: nobody else may have its names. Nil where it has none.
	Own *x509.Certificate
	// Listen is where the gateway listens, once it does; nil for nowhere.
	Listen func() net.Addr
	Logger *slog.Logger
}

// Service serves JoinService.
type Service struct {
	nodev1.UnimplementedJoinServiceServer
	deps     Deps
	attempts *attempts
}

// New returns the service.
func New(deps Deps) *Service { return &Service{deps: deps, attempts: newAttempts()} }

// Join implements JoinService.
func (s *Service) Join(ctx context.Context, req *nodev1.JoinRequest) (*nodev1.JoinResponse, error) {
	if err := s.signs(); err != nil {
		return nil, err
	}
	from := address(ctx)
	if wait := s.attempts.wait(from); wait > 0 {
		return nil, apierr.TooMany(fmt.Sprintf("too many wrong tokens from %s: try again in %s", from, (wait+time.Second).Truncate(time.Second)), wait)
	}
	token, err := s.checkToken(ctx, req.GetToken())
	if err != nil {
		if apierr.IsUnauthenticated(err) {
			s.attempts.wrong(from)
			s.deps.Logger.LogAttrs(ctx, slog.LevelWarn, "machine with a bad token turned away",
				slog.String(telemetry.KeyAddress, from), slog.String(telemetry.KeyNode, req.GetNodeName()), slog.Any(telemetry.KeyError, err))
		}
		return nil, err
	}
	s.attempts.right(from)

	request, err := pki.ParseRequest(req.GetCertificateRequest())
	if err != nil {
		return nil, invalid("certificateRequest", err.Error())
	}
	id, err := s.identity(req.GetNodeName(), request)
	if err != nil {
		return nil, err
	}
	for _, name := range id.DNSNames {
		if err := s.vacant(ctx, name); err != nil {
			return nil, err
		}
	}
	cert, err := s.deps.CA.Sign(request.PublicKey, id)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of node %s: %w", req.GetNodeName(), err)
	}
	s.deps.Logger.LogAttrs(ctx, slog.LevelInfo, "machine joins",
		slog.String(telemetry.KeyNode, req.GetNodeName()), slog.String(telemetry.KeyAddress, from), slog.String("token", token.ID))
	return &nodev1.JoinResponse{Certificate: cert, CaCertificate: pki.EncodeCertificate(s.deps.CA.Certificate().Raw)}, nil
}

// Renew implements JoinService.
func (s *Service) Renew(ctx context.Context, req *nodev1.RenewRequest) (*nodev1.RenewResponse, error) {
	if err := s.signs(); err != nil {
		return nil, err
	}
	caller, _ := rpc.CallerFrom(ctx)
	have := rpc.CertificateFrom(ctx)
	name, isNode := strings.CutPrefix(caller.User, userPrefix)
	if have == nil || !isNode || !slices.Contains(caller.Groups, nodesGroup) {
		return nil, apierr.Forbidden("Node", "", fmt.Sprintf("certificates are renewed for nodes only, by their own certificate; this is %s", caller.User))
	}
	request, err := pki.ParseRequest(req.GetCertificateRequest())
	if err != nil {
		return nil, invalid("certificateRequest", err.Error())
	}
	for _, n := range request.DNSNames {
		if !slices.Contains(have.DNSNames, n) {
			return nil, invalid("certificateRequest", fmt.Sprintf("names %s, which the certificate to be renewed does not: join again with a token", n))
		}
	}
	for _, ip := range request.IPAddresses {
		if !slices.ContainsFunc(have.IPAddresses, ip.Equal) {
			return nil, invalid("certificateRequest", fmt.Sprintf("names %s, which the certificate to be renewed does not: join again with a token", ip))
		}
	}
	if there, err := s.anyNode(ctx, have.DNSNames); err != nil {
		return nil, err
	} else if !there {
		// The certificate that it has ends by itself.
		return nil, apierr.Forbidden("Node", name, fmt.Sprintf("node %s was deleted from the cluster: it joins again with a token", name))
	}
	cert, err := s.deps.CA.Sign(request.PublicKey, pki.Identity{
		CommonName: caller.User, Organizations: []string{nodesGroup}, DNSNames: have.DNSNames, IPs: have.IPAddresses,
	})
	if err != nil {
		return nil, fmt.Errorf("sign certificate of node %s: %w", name, err)
	}
	s.deps.Logger.LogAttrs(ctx, slog.LevelInfo, "node's certificate renewed", slog.String(telemetry.KeyNode, name))
	return &nodev1.RenewResponse{Certificate: cert, CaCertificate: pki.EncodeCertificate(s.deps.CA.Certificate().Raw)}, nil
}

// GetClusterInfo implements JoinService.
func (s *Service) GetClusterInfo(context.Context, *nodev1.GetClusterInfoRequest) (*nodev1.GetClusterInfoResponse, error) {
	if err := s.signs(); err != nil {
		return nil, err
	}
	return &nodev1.GetClusterInfoResponse{
		CaCertificate: pki.EncodeCertificate(s.deps.CA.Certificate().Raw), Addresses: addresses(s.deps.Listen()),
	}, nil
}

func (s *Service) signs() error {
	if s.deps.CA == nil {
		return apierr.FailedPrecondition("Node", "", "this gateway signs no certificates: start it with --ca-key, the key of the cluster's CA (`trireme up` does)")
	}
	return nil
}

// checkToken finds the token that is shown. An unknown one and a wrong one get the same answer, in the same time as far as we
// can help it.
func (s *Service) checkToken(ctx context.Context, shown string) (jointoken.Stored, error) {
	wrong := apierr.Unauthenticated("the token is not known here: it was deleted, or is of another cluster, or not copied whole (`trireme token create` makes one)")
	token, ok := jointoken.ParseCredentials(shown)
	if !ok {
		return jointoken.Stored{}, wrong
	}
	var stored jointoken.Stored
	obj, err := s.deps.Objects.Of("Secret").Load(ctx, jointoken.Namespace, jointoken.SecretName(token.ID))
	switch {
	case err == nil:
		secret, _ := obj.(*corev1.Secret)
		if stored, err = jointoken.FromSecret(secret); err != nil {
			s.deps.Logger.LogAttrs(ctx, slog.LevelWarn, "bootstrap token ignored", slog.Any(telemetry.KeyError, err))
		}
	case !apierr.IsNotFound(err):
		return jointoken.Stored{}, err
	}
	have, want := sha256.Sum256([]byte(token.Secret)), sha256.Sum256([]byte(stored.Secret))
	if subtle.ConstantTimeCompare(have[:], want[:]) != 1 || stored.ID != token.ID || !stored.Joins {
		return jointoken.Stored{}, wrong
	}
	// Whoever knows the secret may know this too.
	if stored.Expired(time.Now()) {
		return jointoken.Stored{}, apierr.Unauthenticated(fmt.Sprintf("token %s expired at %s: `trireme token create` makes a new one",
			stored.ID, stored.Expires.UTC().Format("2006-01-02 15:04:05 MST")))
	}
	return stored, nil
}

// identity is what the certificate of a node will say.
func (s *Service) identity(node string, request *x509.CertificateRequest) (pki.Identity, error) {
	if wrong := validation.IsDNS1123Subdomain(node); len(wrong) > 0 {
		return pki.Identity{}, invalid("nodeName", fmt.Sprintf("%q: %s", node, strings.Join(wrong, "; ")))
	}
	names := []string{node}
	if len(request.DNSNames) > 0 {
		names = slices.Clone(request.DNSNames)
	}
	if len(names) > maxNames || len(request.IPAddresses) > maxAddresses {
		return pki.Identity{}, invalid("certificateRequest", fmt.Sprintf("%d names and %d addresses: at most %d and %d are signed",
			len(names), len(request.IPAddresses), maxNames, maxAddresses))
	}
	for _, n := range names {
		if n != node && !numbered(node, n) {
			return pki.Identity{}, invalid("certificateRequest", fmt.Sprintf("name %q: want the node's, %s, or %[2]s-N of simulated nodes", n, node))
		}
		if s.deps.Own != nil && slices.Contains(s.deps.Own.DNSNames, n) {
			return pki.Identity{}, invalid("nodeName", fmt.Sprintf("%q is a name of the gateway: choose another one with --name", n))
		}
	}
	id := pki.Identity{CommonName: userPrefix + node, Organizations: []string{nodesGroup}, DNSNames: names}
	for _, ip := range request.IPAddresses {
		if ip.IsUnspecified() || ip.IsMulticast() {
			return pki.Identity{}, invalid("certificateRequest", fmt.Sprintf("address %s: no machine has it", ip))
		}
		// Whoever has a certificate for the gateway's address could stand in for it. A node on the same machine is known by its
		// name, as all nodes are.
		if ip.IsLoopback() || s.deps.Own != nil && slices.ContainsFunc(s.deps.Own.IPAddresses, ip.Equal) {
			continue
		}
		id.IPs = append(id.IPs, ip)
	}
	return id, nil
}

// numbered reports whether name is node-N.
func numbered(node, name string) bool {
	digits, ok := strings.CutPrefix(name, node+"-")
	return ok && digits != "" && len(digits) <= 4 && strings.Trim(digits, "0123456789") == ""
}

// vacant refuses the name of a node whose agent is alive.
func (s *Service) vacant(ctx context.Context, name string) error {
	if _, err := s.deps.Objects.Of("Node").Load(ctx, "", name); apierr.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	obj, err := s.deps.Objects.Of("Lease").Load(ctx, leaseNamespace, name)
	if apierr.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	lease, _ := obj.(*coordinationv1.Lease)
	ago := time.Since(lease.GetSpec().GetRenewTime().AsTime())
	if ago >= time.Duration(lease.GetSpec().GetLeaseDurationSeconds())*time.Second {
		return nil
	}
	return apierr.FailedPrecondition("Node", name, fmt.Sprintf(
		"node %s is in the cluster already, and its agent was heard of %s ago: choose another name (--name), or stop that agent and run `trireme node delete %[1]s`",
		name, max(ago, 0).Round(time.Second)))
}

func (s *Service) anyNode(ctx context.Context, names []string) (bool, error) {
	for _, n := range names {
		_, err := s.deps.Objects.Of("Node").Load(ctx, "", n)
		if err == nil {
			return true, nil
		}
		if !apierr.IsNotFound(err) {
			return false, err
		}
	}
	return false, nil
}

func invalid(field, message string) error {
	return apierr.Invalid("", "", apierr.Violation{Field: field, Message: message})
}

// address is where a call comes from, without the port.
func address(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}
