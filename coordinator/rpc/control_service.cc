#include "coordinator/rpc/control_service.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/rpc/listener.h"

namespace paceline {
namespace {

constexpr int64_t kWeightsChunkBytes = 1 << 20;

// One client's export: a chunk is read from the file when the one before it
// was sent.  gRPC keeps it alive until Finish(), which comes after every answer
// of the coordinator; so the answers may hold a plain pointer.
class ExportReactor final : public grpc::ServerWriteReactor<v1::WeightsChunk> {
 public:
  ExportReactor(Coordinator& coordinator, CoordinatorMetrics& metrics,
                const v1::ExportWeightsRequest& request, std::string peer,
                absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place)
      : coordinator_(coordinator),
        metrics_(metrics),
        peer_(std::move(peer)),
        place_(std::move(place)),
        job_{request.id()},
        step_(request.step()),
        next_byte_(std::max<int64_t>(0, request.offset_bytes())) {
    if (place_.ok()) {
      ReadNext();
    } else {
      End(place_.status());
    }
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      End(absl::CancelledError("the client has left"));
    } else if (next_byte_ < chunk_.total_bytes()) {
      ReadNext();
    } else {
      End(absl::OkStatus());
    }
  }

  // The coordinator looks for it while the export waits for its checkpoint.
  void OnCancel() override { has_left_ = true; }
  void OnDone() override { delete this; }

 private:
  void ReadNext() {
    coordinator_.ReadWeights(
        job_, step_, next_byte_, kWeightsChunkBytes,
        [this] { return has_left_.load(); },
        [this](absl::StatusOr<v1::WeightsChunk> part) {
          OnPart(std::move(part));
        });
  }

  void OnPart(absl::StatusOr<v1::WeightsChunk> part) {
    if (!part.ok()) {
      End(part.status());
    } else if (part->data().empty()) {
      End(absl::DataLossError(absl::StrCat("the weights file has no byte ",
                                           next_byte_, ": export it again")));
    } else {
      // While it reads it sends many bytes, and no message.
      Listener::OnKnown(peer_);
      next_byte_ += static_cast<int64_t>(part->data().size());
      step_ = part->step();
      chunk_ = *std::move(part);
      StartWrite(&chunk_);
    }
  }

  void End(const absl::Status& status) {
    metrics_.CountControl("ExportWeights", status.code());
    Finish(ToGrpc(status));
  }

  Coordinator& coordinator_;
  CoordinatorMetrics& metrics_;
  const std::string peer_;
  const absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place_;
  const JobId job_;
  v1::WeightsChunk chunk_;
  int64_t step_;       // of the checkpoint; 0: none, or not known yet
  int64_t next_byte_;  // of the file
  std::atomic<bool> has_left_ = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::WeightsChunk>* ControlService::ExportWeights(
    Context* context, const v1::ExportWeightsRequest* request) {
  return new ExportReactor(coordinator_, metrics_, *request, context->peer(),
                           exports_.Enter(context->peer()));
}

}  // namespace paceline
