// paceline.v1.Trust: certificates for tokens.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"
#include "coordinator/rpc/authority.h"
#include "coordinator/rpc/serve.h"
#include "coordinator/watch/metrics.h"
#include "paceline/v1/trust.grpc.pb.h"

namespace paceline {

// Thread-safe.  Outlived by the constructor's arguments.
class TrustService final : public v1::Trust::CallbackService {
 public:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  // authority: null without TLS.
  TrustService(Coordinator& coordinator, const Authority* authority,
               CoordinatorMetrics& metrics)
      : coordinator_(coordinator), authority_(authority), metrics_(metrics) {}

  Reactor* GetAuthority(Context* context,
                        const v1::GetAuthorityRequest* request,
                        v1::Authority* response) override {
    return Answer(context, "GetAuthority", *request, response,
                  [this](auto done) { done(ViewAuthority()); });
  }
  Reactor* Join(Context* context, const v1::JoinRequest* request,
                v1::Certificate* response) override {
    return Answer(context, "Join", *request, response,
                  [&](auto done) { DoJoin(*request, context->peer(), done); });
  }
  Reactor* Renew(Context* context, const v1::RenewRequest* request,
                 v1::Certificate* response) override {
    return Answer(context, "Renew", *request, response, [&](auto done) {
      DoRenew(*request, context->auth_context(), done);
    });
  }
  Reactor* CreateToken(Context* context, const v1::CreateTokenRequest* request,
                       v1::CreateTokenResponse* response) override {
    return Answer(context, "CreateToken", *request, response,
                  [&](auto done) { DoCreateToken(*request, done); });
  }
  Reactor* ListTokens(Context* context, const v1::ListTokensRequest* request,
                      v1::ListTokensResponse* response) override {
    return Answer(context, "ListTokens", *request, response,
                  [&](auto done) { coordinator_.ListTokens(*request, done); });
  }
  Reactor* RevokeToken(Context* context, const v1::RevokeTokenRequest* request,
                       v1::JoinToken* response) override {
    return Answer(context, "RevokeToken", *request, response, [&](auto done) {
      coordinator_.RevokeToken(request->id(), done);
    });
  }
  Reactor* Revoke(Context* context, const v1::RevokeRequest* request,
                  v1::Revocation* response) override {
    return Answer(context, "Revoke", *request, response,
                  [&](auto done) { DoRevoke(*request, done); });
  }

 private:
  template <typename T>
  using Done = Coordinator::Done<T>;

  // As Serve(); fails without TLS.
  template <typename Request, typename Response, typename Ask>
  Reactor* Answer(Context* context, const char* method, const Request& request,
                  Response* response, const Ask& ask) {
    return Serve(metrics_, context, method, request, response, [&](auto done) {
      if (authority_ != nullptr) return ask(done);
      done(absl::FailedPreconditionError(
          "this coordinator runs without TLS: it has neither tokens nor "
          "certificates; start it with --tls"));
    });
  }

  v1::Authority ViewAuthority() const;
  void DoJoin(const v1::JoinRequest& request, const std::string& peer,
              const Done<v1::Certificate>& done);
  absl::StatusOr<v1::Certificate> SignFor(const Identity& identity,
                                          const std::string& request) const;
  void DoRenew(const v1::RenewRequest& request,
               const std::shared_ptr<const grpc::AuthContext>& caller,
               const Done<v1::Certificate>& done);
  void DoRevoke(const v1::RevokeRequest& request,
                const Done<v1::Revocation>& done);
  void DoCreateToken(const v1::CreateTokenRequest& request,
                     const Done<v1::CreateTokenResponse>& done);

  Coordinator& coordinator_;
  const Authority* const authority_;
  CoordinatorMetrics& metrics_;
};

}  // namespace paceline
