#include "worker/rpc/grpc_run_factory.h"

#include "worker/rpc/weights_upload.h"

namespace paceline {

absl::Status GrpcRunFactory::UploadWeights(
    const Fence& fence, const std::vector<NamedTensor>& weights,
    const CancelToken& cancel) {
  return paceline::UploadWeights(coordinator_, fence, weights, cancel);
}

}  // namespace paceline
