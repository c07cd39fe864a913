package gateway

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
)

// provider lists the gateway's services beside those registered on the server itself.
type provider struct {
	gateway *Gateway
	server  reflection.ServiceInfoProvider
}

func (p provider) GetServiceInfo() map[string]grpc.ServiceInfo {
	all := p.server.GetServiceInfo()
	for _, d := range p.gateway.services {
		all[string(d.FullName())] = grpc.ServiceInfo{Metadata: d.ParentFile().Path()}
	}
	return all
}

// registrar is a gRPC server as reflection needs it.
type registrar interface {
	grpc.ServiceRegistrar
	reflection.ServiceInfoProvider
}

// RegisterReflection serves both versions of reflection over the table, so that tools can list and describe kinds.
func (g *Gateway) RegisterReflection(s registrar) {
	opts := reflection.ServerOptions{Services: provider{g, s}}
	reflectionv1.RegisterServerReflectionServer(s, reflection.NewServerV1(opts))
	reflectionv1alpha.RegisterServerReflectionServer(s, reflection.NewServer(opts))
}
