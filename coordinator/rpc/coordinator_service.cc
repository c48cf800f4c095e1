#include "coordinator/rpc/coordinator_service.h"

#include <cstdint>
#include <utility>

#include "coordinator/rpc/attach_stream.h"
#include "coordinator/rpc/convert.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// One worker's upload: a piece is read when the one before it was written.
// gRPC keeps it alive until Finish(), which comes after every answer of the
// coordinator; so the answers may hold a plain pointer.
class UploadReactor final : public grpc::ServerReadReactor<v1::WeightsPiece> {
 public:
  UploadReactor(Coordinator& coordinator, v1::WeightsReceipt* receipt)
      : coordinator_(coordinator), receipt_(receipt) {
    StartRead(&piece_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close();
      return;
    }
    WeightsPiece piece = FromProto(std::move(piece_));
    fence_ = piece.fence;
    bytes_ += static_cast<int64_t>(piece.data.size());
    coordinator_.WriteWeights(std::move(piece),
                              [this](const absl::Status& status) {
                                if (status.ok()) {
                                  StartRead(&piece_);
                                } else {
                                  Finish(ToGrpc(status));
                                }
                              });
  }

  void OnDone() override { delete this; }

 private:
  void Close() {
    receipt_->set_bytes(bytes_);
    if (!fence_.job.assigned()) {  // a stage without parameters
      Finish(grpc::Status::OK);
      return;
    }
    coordinator_.SyncWeights(
        fence_, [this](const absl::Status& status) { Finish(ToGrpc(status)); });
  }

  Coordinator& coordinator_;
  v1::WeightsReceipt* const receipt_;
  v1::WeightsPiece piece_;
  Fence fence_;  // of the last piece
  int64_t bytes_ = 0;
};

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>*
CoordinatorService::Attach(grpc::CallbackServerContext* context) {
  return AttachStream::Start(coordinator_, metrics_, context->peer());
}

grpc::ServerReadReactor<v1::WeightsPiece>* CoordinatorService::UploadWeights(
    grpc::CallbackServerContext* /*context*/, v1::WeightsReceipt* receipt) {
  return new UploadReactor(coordinator_, receipt);
}

}  // namespace paceline
