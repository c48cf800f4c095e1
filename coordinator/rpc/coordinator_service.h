// paceline.v1.Coordinator, the service for workers.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/jobs/records.h"
#include "coordinator/mesh/mesh_state.h"
#include "coordinator/watch/metrics.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

// registration: the time in which an Attach must send its registration.
// Outlived by both references.
std::unique_ptr<grpc::Service> MakeCoordinatorService(
    Coordinator& coordinator, CoordinatorMetrics& metrics,
    absl::Duration registration = absl::Seconds(10));

// --- conversions ------------------------------------------------------------

// Checks a registration and completes its addresses: the host of `peer`, which
// is grpc::ServerContext::peer(), replaces an empty or unspecified one
// (0.0.0.0, [::]).
// Errors: Unimplemented  as CheckProtocol(); InvalidArgument, also a loopback
// address of another machine
absl::Status TakeRegistration(const std::string& peer,
                              v1::Registration& worker);

// Whether a coordinator that speaks the protocols from `oldest` to `newest`
// understands a worker that speaks `spoken`; 0: the worker did not say.
// Errors: Unimplemented  no; says which of the two to upgrade
absl::Status CheckProtocol(int spoken, int oldest, int newest);

// "ipv4:10.0.0.7:4242" gives "10.0.0.7", "ipv6:%5B::1%5D:4242" gives "[::1]";
// anything else gives "".
std::string HostOfPeer(const std::string& peer);

// Errors: InvalidArgument  no correct worker sends this
absl::StatusOr<WorkerReport> FromProto(v1::Heartbeat heartbeat);

v1::StandingOrder ToProto(const StandingOrder& order);

}  // namespace paceline
