#include "coordinator/rpc/piece_service.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/cluster/run_order.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/listener.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// Small enough for a slow link to deliver one before its reader gives up.
constexpr int64_t kPieceChunkBytes = 256 << 10;

// One worker's request: it reads the next chunk when the last one was sent.
// gRPC keeps it alive until Finish(), which comes after every answer of the
// coordinator; so the answers may hold a plain pointer.
class PieceReactor final : public grpc::ServerWriteReactor<v1::PieceChunk> {
 public:
  PieceReactor(Coordinator& coordinator, const v1::PieceRequest& request,
               const std::string& peer,
               absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place)
      : coordinator_(coordinator),
        place_(std::move(place)),
        job_{request.job()},
        cut_{request.attempt(), request.step()} {
    absl::Status begun = place_.status();
    if (begun.ok()) begun = Read(request);
    if (!begun.ok()) {
      Finish(ToGrpc(begun));
      return;
    }
    coordinator_.FindCheckpoint(
        job_, cut_, [this, peer](absl::StatusOr<CheckpointId> found) {
          if (!found.ok()) return Finish(ToGrpc(found.status()));
          // While it reads, the worker sends many acknowledgement bytes and no
          // message.
          Listener::OnKnown(peer);
          checkpoint_ = *found;
          ReadNext();
        });
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(ToGrpc(absl::CancelledError("the worker has left")));
    offset_ += static_cast<int64_t>(chunk_.data().size());
    if (offset_ == chunk_.total_bytes()) {
      ++next_;
      offset_ = 0;
    }
    ReadNext();
  }

  void OnDone() override { delete this; }

 private:
  absl::Status Read(const v1::PieceRequest& request) {
    PACELINE_ASSIGN_OR_RETURN(
        const PieceWish wish,
        FromProto(request, kCoordinatorProcess.incarnation));
    if (wish.follows) {
      return absl::InvalidArgumentError("nothing can be followed here");
    }
    offset_ = wish.offset;
    for (const LayerRange& range : wish.layers) {
      for (int layer = range.first; layer < range.last; ++layer) {
        layers_.push_back(layer);
      }
    }
    return absl::OkStatus();
  }

  void ReadNext() {
    if (next_ == layers_.size()) return Finish(grpc::Status::OK);
    coordinator_.ReadPiece(job_, checkpoint_, layers_[next_], offset_,
                           kPieceChunkBytes, [this](auto chunk) {
                             if (!chunk.ok()) {
                               return Finish(ToGrpc(chunk.status()));
                             }
                             chunk_ = *std::move(chunk);
                             chunk_.set_attempt(cut_.attempt);
                             chunk_.set_step(cut_.step);
                             StartWrite(&chunk_);
                           });
  }

  Coordinator& coordinator_;
  const absl::StatusOr<std::unique_ptr<StreamLimit::Place>> place_;
  const JobId job_;
  const Cut cut_;
  std::vector<int> layers_;
  CheckpointId checkpoint_;
  v1::PieceChunk chunk_;
  size_t next_ = 0;  // of layers_
  int64_t offset_ = 0;
};

}  // namespace

grpc::ServerWriteReactor<v1::PieceChunk>* PieceService::Pieces(
    grpc::CallbackServerContext* context, const v1::PieceRequest* request) {
  return new PieceReactor(coordinator_, *request, context->peer(),
                          streams_.Enter(context->peer()));
}

}  // namespace paceline
