// paceline.v1.Coordinator: what workers call.
#pragma once

#include "coordinator/coordinator.h"
#include "coordinator/metrics.h"
#include "paceline/v1/coordinator.grpc.pb.h"

namespace paceline {

// Turns calls of workers into calls on Coordinator, and back; decides nothing.
// Thread-safe.  Outlived by both constructor arguments.
class CoordinatorService final : public v1::Coordinator::CallbackService {
 public:
  CoordinatorService(Coordinator& coordinator, CoordinatorMetrics& metrics)
      : coordinator_(coordinator), metrics_(metrics) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Attach(
      grpc::CallbackServerContext* context) override;

  grpc::ServerReadReactor<v1::WeightsPiece>* UploadWeights(
      grpc::CallbackServerContext* context,
      v1::WeightsReceipt* receipt) override;

 private:
  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
};

}  // namespace paceline
