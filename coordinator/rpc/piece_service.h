// The coordinator's part of paceline.v1.Stage: the pieces of checkpoints.
#pragma once

#include "coordinator/coordinator.h"
#include "core/rpc/stream_limit.h"
#include "paceline/v1/stage.grpc.pb.h"

namespace paceline {

// Turns calls of workers into calls on Coordinator; decides nothing.
// Thread-safe.  Outlived by the coordinator.
class PieceService final : public v1::Stage::CallbackService {
 public:
  explicit PieceService(Coordinator& coordinator) : coordinator_(coordinator) {}

  grpc::ServerWriteReactor<v1::PieceChunk>* Pieces(
      grpc::CallbackServerContext* context,
      const v1::PieceRequest* request) override;

 private:
  Coordinator& coordinator_;
  StreamLimit streams_;
};

}  // namespace paceline
