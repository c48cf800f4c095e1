// Hands weights over to the coordinator.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "paceline/v1/coordinator.grpc.pb.h"
#include "worker/cancel_token.h"
#include "worker/tensor_part.h"

namespace paceline {

constexpr int64_t kUploadPieceBytes = 256 << 10;

struct UploadPace {
  // A call takes pieces for so long, at least one.  Its receipt says that they
  // are on the coordinator's disk.
  absl::Duration call = absl::Seconds(5);
  // A call that has no receipt by then stands still.  A link of 20 KB/s gets
  // a piece and full socket buffers through in this time.
  absl::Duration deadline = absl::Minutes(2);
};

// Sends `parts` in pieces until the coordinator has acknowledged all.  A call
// that breaks or stands still is tried again for as long as it takes, from the
// last piece that was acknowledged.
// Errors: as RunFactory::UploadWeights.
absl::Status UploadWeights(v1::Coordinator::Stub& stub, const Fence& fence,
                           const std::vector<TensorPart>& parts,
                           const CancelToken& cancel,
                           const UploadPace& pace = {});

}  // namespace paceline
