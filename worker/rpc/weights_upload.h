// Hands weights over to the coordinator.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "paceline/v1/coordinator.grpc.pb.h"
#include "worker/cancel_token.h"
#include "worker/tensor_part.h"

namespace paceline {

// Sends `parts` in pieces of at most 1 MiB and waits for the receipt; tries
// again, from the start, while the coordinator cannot be reached.
// Errors: as RunFactory::UploadWeights.
absl::Status UploadWeights(v1::Coordinator::Stub& stub, const Fence& fence,
                           const std::vector<TensorPart>& parts,
                           const CancelToken& cancel);

}  // namespace paceline
