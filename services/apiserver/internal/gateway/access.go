package gateway

import (
	"context"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/kit/rpc"
	authorizationv1 "trireme.dev/proto/gen/trireme/authorization/v1"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/request"
)

// addAccessReview serves questions about what callers may do.
func (g *Gateway) addAccessReview() error {
	service := authorizationv1.File_trireme_authorization_v1_access_review_service_proto.Services().ByName("AccessReviewService")
	return g.add(service, nil, func(method string) handler {
		if method == "SelfSubjectAccessReview" {
			return g.reviewOwnAccess
		}
		return nil
	})
}

// reviewOwnAccess asks for the caller what authorization would ask about such a call.
func (g *Gateway) reviewOwnAccess(ctx context.Context, s grpc.ServerStream) error {
	req := &authorizationv1.SelfSubjectAccessReviewRequest{}
	if err := receive(s, req); err != nil {
		return err
	}
	var missing []apierr.Violation
	if req.GetVerb() == "" {
		missing = append(missing, apierr.Violation{Field: "verb", Message: "Required value"})
	}
	if req.GetResource() == "" {
		missing = append(missing, apierr.Violation{Field: "resource", Message: "Required value"})
	}
	if len(missing) > 0 {
		return apierr.Invalid("SelfSubjectAccessReview", "", missing...)
	}
	caller, _ := rpc.CallerFrom(ctx) // authentication has seen to that
	err := g.authorizer.Authorize(ctx, &request.Attributes{
		Method: &request.Method{
			Verb: req.GetVerb(), Group: req.GetGroup(), Resource: req.GetResource(), Kind: g.kindOf(req.GetGroup(), req.GetResource()),
		},
		Caller: caller, Subresource: req.GetSubresource(), Namespace: req.GetNamespace(), Name: req.GetName(),
		FieldSelector: req.GetFieldSelector(), LabelSelector: req.GetLabelSelector(),
	})
	out := &authorizationv1.SelfSubjectAccessReviewResponse{Allowed: err == nil}
	switch {
	case err == nil:
	// An object that is not there is nobody's: that says as much as a refusal.
	case apierr.IsForbidden(err), apierr.IsNotFound(err):
		out.Reason = err.Error()
	default:
		return err
	}
	return sendMessage(s, out)
}

// kindOf is the name of the kind that a resource is of; empty where there is none.
func (g *Gateway) kindOf(group, resource string) string {
	is := func(k *kind.Kind) bool { return k.Plural == resource && registry.Group(k) == group }
	for _, r := range g.registry.Resources() {
		if is(r.Kind) {
			return r.Kind.Name
		}
	}
	for _, v := range g.registry.Versions() {
		if is(v.Kind) {
			return v.Kind.Name
		}
	}
	return ""
}
