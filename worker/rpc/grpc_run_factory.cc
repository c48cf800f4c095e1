#include "worker/rpc/grpc_run_factory.h"

#include "worker/rpc/weights_upload.h"

namespace paceline {

absl::Status GrpcRunFactory::UploadWeights(const Fence& fence,
                                           const std::vector<TensorPart>& parts,
                                           const CancelToken& cancel) {
  return paceline::UploadWeights(coordinator_, fence, parts, cancel);
}

}  // namespace paceline
