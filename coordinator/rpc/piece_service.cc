#include "coordinator/rpc/piece_service.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/cluster/run_order.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
// As many as a model's description may have.
constexpr int kMostLayers = 4096;

// One worker's request: a chunk is read when the one before it was sent.  gRPC
// keeps it alive until Finish(), which comes after every answer of the
// coordinator; so the answers may hold a plain pointer.
class PieceReactor final : public grpc::ServerWriteReactor<v1::PieceChunk> {
 public:
  PieceReactor(Coordinator& coordinator, const v1::PieceRequest& request)
      : coordinator_(coordinator),
        job_{request.job()},
        cut_{request.attempt(), request.step()} {
    if (const absl::Status read = Read(request); !read.ok()) {
      Finish(ToGrpc(read));
      return;
    }
    coordinator_.FindCheckpoint(job_, cut_,
                                [this](absl::StatusOr<CheckpointId> found) {
                                  if (!found.ok())
                                    return Finish(ToGrpc(found.status()));
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
    if (request.to() != kCoordinatorProcess.incarnation.value) {
      return absl::AbortedError("a worker's process is meant, not this");
    }
    if (!request.has_step()) {
      return absl::InvalidArgumentError("nothing can be followed here");
    }
    for (const v1::LayerRange& range : request.layers()) {
      const int least = layers_.empty() ? 0 : layers_.back() + 1;
      if (range.first() < least || range.last() <= range.first() ||
          range.last() > kMostLayers) {
        return InvalidArgument("layers [", range.first(), ", ", range.last(),
                               ") are none, or not ascending");
      }
      for (int layer = range.first(); layer < range.last(); ++layer) {
        layers_.push_back(layer);
      }
    }
    return absl::OkStatus();
  }

  void ReadNext() {
    if (next_ == layers_.size()) return Finish(grpc::Status::OK);
    coordinator_.ReadPiece(job_, checkpoint_, layers_[next_], offset_,
                           kChunkBytes, [this](auto chunk) {
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
    grpc::CallbackServerContext* /*context*/, const v1::PieceRequest* request) {
  return new PieceReactor(coordinator_, *request);
}

}  // namespace paceline
