#include "coordinator/rpc/piece_fetcher.h"

#include <atomic>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/rpc/call_deadline.h"
#include "core/rpc/channel.h"
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
    if (cancelled_) return absl::CancelledError("the coordinator stops");
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
    end = absl::DeadlineExceededError(absl::StrCat(
        "it came to a halt after ", received, " of its ", ask.bytes, " bytes"));
  }
  if (!end.ok()) address_.clear();  // the next fetch dials anew
  {
    absl::MutexLock lock(&mutex_);
    call_ = nullptr;
    if (cancelled_) return absl::CancelledError("the coordinator stops");
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

}  // namespace paceline
