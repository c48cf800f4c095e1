// Answers a unary call with the coordinator's answer.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/watch/metrics.h"
#include "core/rpc/listener.h"
#include "core/rpc/status.h"
#include "grpcpp/server_context.h"

namespace paceline {

// Calls `ask`, whose answer goes to the caller; counts the call and finishes
// it.
template <typename Request, typename Response, typename Ask>
grpc::ServerUnaryReactor* Serve(CoordinatorMetrics& metrics,
                                grpc::CallbackServerContext* context,
                                const char* method, const Request& request,
                                Response* response, const Ask& ask) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  Listener::OnMessage(context->peer(),
                      static_cast<int64_t>(request.ByteSizeLong()));
  ask([=, &metrics](absl::StatusOr<Response> answer) {
    metrics.CountControl(method, answer.status().code());
    if (answer.ok()) *response = *std::move(answer);
    reactor->Finish(ToGrpc(answer.status()));
  });
  return reactor;
}

// A method of a service that has metrics_: `call` begins it, and gives its
// answer to `done`.
#define PACELINE_CALL(Method, Response, call)                            \
  grpc::ServerUnaryReactor* Method(grpc::CallbackServerContext* context, \
                                   const v1::Method##Request* request,   \
                                   v1::Response* response) override {    \
    return Serve(metrics_, context, #Method, *request, response,         \
                 [&]([[maybe_unused]] auto done) { call; });             \
  }

}  // namespace paceline
