#include "worker/transport/grpc_run_factory.h"

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/obs/log.h"
#include "core/rpc/status.h"
#include "grpcpp/client_context.h"
#include "paceline/v1/coordinator.grpc.pb.h"

namespace paceline {

absl::Status GrpcRunFactory::UploadWeights(const Fence& fence,
                                           const std::vector<TensorPart>& parts,
                                           const CancelToken& cancel) {
  return paceline::UploadWeights(connections_.coordinator, fence, parts,
                                 cancel);
}
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(500);

// Walks over the parts, chunk by chunk.
class ChunkCursor {
 public:
  explicit ChunkCursor(const std::vector<TensorPart>& parts) : parts_(&parts) {
    SkipEmpty();
  }

  bool at_end() const { return part_ == parts_->size(); }

  // Must not be called at the end.
  v1::WeightsPiece Take(const Fence& fence) {
    const TensorPart& part = (*parts_)[part_];
    const int64_t bytes =
        std::min(kUploadChunkBytes, part.tensor.bytes() - offset_bytes_);
    v1::WeightsPiece chunk;
    chunk.set_job(fence.job.value);
    chunk.set_attempt(fence.attempt);
    chunk.set_plan_version(fence.plan_version);
    chunk.set_tensor(part.name);
    chunk.set_offset_bytes(part.offset_bytes + offset_bytes_);
    chunk.set_data(part.tensor.data.get() + offset_bytes_, bytes);
    offset_bytes_ += bytes;
    SkipEmpty();
    return chunk;
  }

 private:
  // Moves to the next part that has bytes left.
  void SkipEmpty() {
    while (!at_end() && offset_bytes_ == (*parts_)[part_].tensor.bytes()) {
      ++part_;
      offset_bytes_ = 0;
    }
  }

  const std::vector<TensorPart>* parts_;
  size_t part_ = 0;
  int64_t offset_bytes_ = 0;  // in the part
};

// Makes one call, from `cursor` on.  `cursor` moves when all sent chunks have
// been acknowledged.
absl::Status SendSome(v1::Coordinator::Stub& stub, const Fence& fence,
                      const UploadPace& pace, const CancelToken& cancel,
                      ChunkCursor& cursor) {
  const SystemClock clock;
  const Instant begin = clock.Now();
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(pace.deadline));
  v1::WeightsReceipt receipt;
  const std::unique_ptr<grpc::ClientWriter<v1::WeightsPiece>> writer =
      stub.UploadWeights(&context, &receipt);
  ChunkCursor next = cursor;
  int64_t sent = 0;
  while (!next.at_end() && (sent == 0 || clock.Now() - begin < pace.call)) {
    const v1::WeightsPiece chunk = next.Take(fence);
    if (!cancel.status().ok() || !writer->Write(chunk)) break;
    sent += static_cast<int64_t>(chunk.data().size());
  }
  if (!cancel.status().ok()) context.TryCancel();
  writer->WritesDone();
  const absl::Status status = FromGrpc(writer->Finish());
  if (!status.ok()) return status;
  if (receipt.bytes() != sent) {
    return Unavailable("the coordinator took ", receipt.bytes(), " bytes of ",
                       sent);
  }
  cursor = next;
  return absl::OkStatus();
}

bool IsWorthAnotherTry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) || absl::IsUnknown(status);
}

}  // namespace

absl::Status UploadWeights(const std::shared_ptr<grpc::Channel>& coordinator,
                           const Fence& fence,
                           const std::vector<TensorPart>& parts,
                           const CancelToken& cancel, const UploadPace& pace) {
  const auto stub = v1::Coordinator::NewStub(coordinator);
  ChunkCursor cursor(parts);
  for (bool said = false; !cursor.at_end();) {
    const absl::Status status = SendSome(*stub, fence, pace, cancel, cursor);
    if (!cancel.status().ok()) return cancel.status();
    if (status.ok()) continue;
    if (!IsWorthAnotherTry(status)) return status;
    if (!said) {
      Log(LogLevel::kWarn, "weights were not taken: will keep trying",
          {{"job", fence.job.value}, {"status", status.ToString()}});
      said = true;
    }
    if (const absl::Status cancelled = cancel.Pause(kPause); !cancelled.ok()) {
      return cancelled;
    }
  }
  return absl::OkStatus();
}

}  // namespace paceline
