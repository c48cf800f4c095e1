// paceline.v1.Coordinator, the service for workers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/jobs/records.h"
#include "coordinator/mesh/mesh_state.h"
#include "coordinator/watch/metrics.h"
#include "core/rpc/listener.h"
#include "paceline/v1/coordinator.grpc.pb.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

// Turns calls of workers into calls on Coordinator, and back; decides nothing.
// Thread-safe.  Outlived by both references of the constructor.
class CoordinatorService final : public v1::Coordinator::CallbackService {
 public:
  // registration: the time in which an Attach must send its registration.
  CoordinatorService(Coordinator& coordinator, CoordinatorMetrics& metrics,
                     absl::Duration registration = absl::Seconds(10))
      : coordinator_(coordinator),
        metrics_(metrics),
        registration_(registration) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Attach(
      grpc::CallbackServerContext* context) override;

  grpc::ServerReadReactor<v1::WeightsPiece>* UploadWeights(
      grpc::CallbackServerContext* context,
      v1::WeightsReceipt* receipt) override;

 private:
  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
  const absl::Duration registration_;
  StreamLimit strangers_;
};

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
