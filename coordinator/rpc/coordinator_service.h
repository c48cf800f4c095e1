// paceline.v1.Coordinator, the service for workers.
#pragma once

#include "absl/time/time.h"
#include "coordinator/coordinator.h"
#include "coordinator/watch/metrics.h"
#include "core/rpc/listener.h"
#include "paceline/v1/coordinator.grpc.pb.h"

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

}  // namespace paceline
