#include "coordinator/rpc/coordinator_service.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/rpc/attach_stream.h"
#include "coordinator/rpc/convert.h"
#include "core/base/errors.h"
#include "core/rpc/call_deadline.h"
#include "core/rpc/listener.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// Longer than the two minutes after which a worker gives up a call.
constexpr absl::Duration kLongestStandstill = absl::Minutes(3);

// One worker's upload: it reads the next chunk when the last one was written.
// gRPC keeps it alive until Finish(), which comes after every answer of the
// coordinator; so the answers may hold a plain pointer.
class UploadReactor final : public grpc::ServerReadReactor<v1::WeightsPiece> {
 public:
  UploadReactor(Coordinator& coordinator, v1::WeightsReceipt* receipt,
                grpc::CallbackServerContext& context,
                absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place)
      : coordinator_(coordinator),
        receipt_(receipt),
        peer_(context.peer()),
        place_(std::move(place)),
        context_(context) {
    GrantTime();
    if (place_.ok()) {
      StartRead(&piece_);
    } else {
      // Not ResourceExhausted, which in an upload means a full disk.
      Finish(ToGrpc(Unavailable(place_.status().message())));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close();
      return;
    }
    GrantTime();
    if (FenceOf(piece_) == fence_) return Write();
    fence_ = FenceOf(piece_);
    coordinator_.AdmitUpload(fence_, peer_, [this](const absl::Status& may) {
      if (!may.ok()) return Finish(ToGrpc(may));
      Write();
    });
  }

  void OnDone() override { delete this; }

 private:
  void GrantTime() {
    deadline_.emplace(kLongestStandstill, [this] { context_.TryCancel(); });
  }

  void Write() {
    bytes_ += static_cast<int64_t>(piece_.data().size());
    coordinator_.WriteWeights(std::move(piece_),
                              [this](const absl::Status& status) {
                                if (status.ok()) {
                                  place_ = nullptr;
                                  Listener::OnKnown(peer_);
                                  StartRead(&piece_);
                                } else {
                                  Finish(ToGrpc(status));
                                }
                              });
  }

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
  const std::string peer_;
  // Held until a chunk of a known job was written.
  absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place_;
  v1::WeightsPiece piece_;
  Fence fence_;  // of the last chunk
  int64_t bytes_ = 0;
  grpc::CallbackServerContext& context_;
  std::optional<CallDeadline> deadline_;
};

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>*
CoordinatorService::Attach(grpc::CallbackServerContext* context) {
  return AttachStream::Start(coordinator_, metrics_, context->peer(),
                             context->auth_context(), strangers_,
                             registration_);
}

grpc::ServerReadReactor<v1::WeightsPiece>* CoordinatorService::UploadWeights(
    grpc::CallbackServerContext* context, v1::WeightsReceipt* receipt) {
  return new UploadReactor(coordinator_, receipt, *context,
                           strangers_.Enter(context->peer()));
}

}  // namespace paceline
