#include "worker/rpc/weights_upload.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/obs/log.h"
#include "core/rpc/status.h"
#include "grpcpp/client_context.h"

namespace paceline {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;
// A try that takes longer than a slow link needs for 1 GiB has hung.
constexpr auto kTryDeadline = std::chrono::minutes(10);
constexpr absl::Duration kPause = absl::Milliseconds(500);

// False when the stream has broken.
bool SendTensor(grpc::ClientWriterInterface<v1::WeightsPiece>& writer,
                const Fence& fence, const TensorPart& part,
                const CancelToken& cancel) {
  const int64_t bytes = part.tensor.bytes();
  for (int64_t offset = 0; offset < bytes; offset += kPieceBytes) {
    if (!cancel.status().ok()) return false;
    v1::WeightsPiece piece;
    piece.set_job(fence.job.value);
    piece.set_attempt(fence.attempt);
    piece.set_plan_version(fence.plan_version);
    piece.set_tensor(part.name);
    piece.set_offset_bytes(part.offset_bytes + offset);
    piece.set_data(part.tensor.data.get() + offset,
                   std::min(kPieceBytes, bytes - offset));
    if (!writer.Write(piece)) return false;
  }
  return true;
}

absl::Status TryOnce(v1::Coordinator::Stub& stub, const Fence& fence,
                     const std::vector<TensorPart>& parts,
                     const CancelToken& cancel) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTryDeadline);
  v1::WeightsReceipt receipt;
  const std::unique_ptr<grpc::ClientWriter<v1::WeightsPiece>> writer =
      stub.UploadWeights(&context, &receipt);
  int64_t sent = 0;
  for (const TensorPart& part : parts) {
    if (!SendTensor(*writer, fence, part, cancel)) break;
    sent += part.tensor.bytes();
  }
  if (!cancel.status().ok()) context.TryCancel();
  writer->WritesDone();
  const absl::Status status = FromGrpc(writer->Finish());
  if (!status.ok()) return status;
  if (receipt.bytes() != sent) {
    return absl::UnavailableError(absl::StrCat(
        "the coordinator took ", receipt.bytes(), " bytes of ", sent));
  }
  return absl::OkStatus();
}

bool IsWorthAnotherTry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) || absl::IsUnknown(status);
}

}  // namespace

absl::Status UploadWeights(v1::Coordinator::Stub& stub, const Fence& fence,
                           const std::vector<TensorPart>& parts,
                           const CancelToken& cancel) {
  for (bool said = false;;) {
    const absl::Status status = TryOnce(stub, fence, parts, cancel);
    if (!cancel.status().ok()) return cancel.status();
    if (status.ok() || !IsWorthAnotherTry(status)) return status;
    if (!said) {
      Log(LogLevel::kWarn, "weights were not taken: will keep trying",
          {{"job", fence.job.value}, {"status", status.ToString()}});
      said = true;
    }
    if (const absl::Status cancelled = cancel.Pause(kPause); !cancelled.ok()) {
      return cancelled;
    }
  }
}

}  // namespace paceline
