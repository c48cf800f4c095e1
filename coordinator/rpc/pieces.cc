#include "coordinator/rpc/pieces.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/cluster/run_order.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/listener.h"
#include "core/rpc/status.h"
#include "paceline/v1/stage.grpc.pb.h"

namespace paceline {

namespace {

constexpr int64_t kLeastBytes = 64 << 10;

absl::Status CheckChunk(const v1::PieceChunk& chunk, const HeldPiece& ask,
                        int64_t received) {
  const Piece& piece = ask.piece;
  const bool is_it = chunk.attempt() == piece.cut.attempt &&
                     chunk.step() == piece.cut.step &&
                     chunk.layer() == piece.layer;
  const auto size = static_cast<int64_t>(chunk.data().size());
  if (is_it && chunk.total_bytes() == ask.bytes && chunk.offset() == received &&
      size <= ask.bytes - received) {
    return absl::OkStatus();
  }
  return InvalidArgument("layer ", chunk.layer(), " of step ", chunk.step(),
                         " came, ", size, " bytes at ", chunk.offset(), " of ",
                         chunk.total_bytes(), "; need some at ", received,
                         " of ", ask.bytes);
}

}  // namespace

absl::StatusOr<uint64_t> GrpcPieceFetcher::Fetch(
    const HeldPiece& ask,
    absl::FunctionRef<absl::Status(absl::string_view)> take) {
  if (ask.holder.address != address_) {
    address_ = ask.holder.address;
    channel_ = MakeChannel(address_);
  }
  v1::PieceRequest request;
  request.set_to(ask.holder.process.value);
  request.set_job(ask.job.value);
  request.set_attempt(ask.piece.cut.attempt);
  request.set_step(ask.piece.cut.step);
  request.add_layers()->set_first(ask.piece.layer);
  request.mutable_layers(0)->set_last(ask.piece.layer + 1);
  grpc::ClientContext context;
  request.set_offset(ask.offset);
  // Bytes came before, probably from this holder, which may be back soon.
  context.set_wait_for_ready(ask.offset > 0);
  std::atomic<bool> is_late = false;
  std::optional<CallDeadline> deadline;
  const auto grant_time = [&] {
    deadline.emplace(patience_, [&] {
      is_late = true;
      context.TryCancel();
    });
  };
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return Cancelled("the coordinator stops");
    call_ = &context;
  }
  const auto stub = v1::Stage::NewStub(channel_);
  const auto reader = stub->Pieces(&context, request);
  v1::PieceChunk chunk;
  int64_t received = ask.offset;
  int64_t granted_at = received;
  bool came = false;
  grant_time();
  absl::Status wrong;
  while (wrong.ok() && reader->Read(&chunk)) {
    came = true;
    wrong = CheckChunk(chunk, ask, received);
    received += static_cast<int64_t>(chunk.data().size());
    if (wrong.ok()) wrong = take(chunk.data());
    if (received - granted_at < kLeastBytes) continue;
    granted_at = received;
    grant_time();
  }
  if (!wrong.ok()) context.TryCancel();
  absl::Status end = FromGrpc(reader->Finish());
  deadline.reset();
  if (is_late) {
    end = DeadlineExceeded("it came to a halt after ", received, " of its ",
                           ask.bytes, " bytes");
  }
  if (!end.ok()) address_.clear();  // the next fetch dials anew
  {
    absl::MutexLock lock(&mutex_);
    call_ = nullptr;
    if (cancelled_) return Cancelled("the coordinator stops");
  }
  if (!wrong.ok()) return wrong;
  if (!end.ok()) return end;
  if (came && received == ask.bytes) return chunk.checksum();
  return DataLoss("its ", ask.bytes, " bytes came as ", received);
}

void GrpcPieceFetcher::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (call_ != nullptr) call_->TryCancel();
}

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
    if (!ok) return Finish(ToGrpc(Cancelled("the worker has left")));
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
    if (wish.follows) return InvalidArgument("nothing can be followed here");
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

// Turns calls of workers into calls on Coordinator; decides nothing.
// Thread-safe.
class PieceService final : public v1::Stage::CallbackService {
 public:
  explicit PieceService(Coordinator& coordinator) : coordinator_(coordinator) {}

  grpc::ServerWriteReactor<v1::PieceChunk>* Pieces(
      grpc::CallbackServerContext* context,
      const v1::PieceRequest* request) override {
    return new PieceReactor(coordinator_, *request, context->peer(),
                            streams_.Enter(context->peer()));
  }

 private:
  Coordinator& coordinator_;
  StreamLimit streams_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakePieceService(Coordinator& coordinator) {
  return std::make_unique<PieceService>(coordinator);
}

}  // namespace paceline
