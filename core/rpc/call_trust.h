// One call of the coordinator's service Trust, on a connection of its own.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/rpc/channel.h"
#include "core/rpc/enrol.h"
#include "core/rpc/status.h"
#include "grpcpp/client_context.h"
#include "paceline/v1/trust.grpc.pb.h"

namespace paceline {

template <typename Request, typename Response>
absl::StatusOr<Response> CallTrust(
    const std::string& coordinator, const Credentials& credentials,
    grpc::Status (v1::Trust::Stub::*method)(grpc::ClientContext*,
                                            const Request&, Response*),
    const Request& request) {
  const auto stub = v1::Trust::NewStub(MakeChannel(coordinator, credentials));
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(absl::Seconds(5)));
  Response response;
  const absl::Status status =
      FromGrpc((stub.get()->*method)(&context, request, &response));
  if (!status.ok()) return status;
  return response;
}

}  // namespace paceline
