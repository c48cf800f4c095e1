// The parts that a run takes from outside: engines, data, neighbours, the
// coordinator.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/errors.h"
#include "core/job/job_model.h"
#include "core/os/thread.h"
#include "core/transfer/checksum.h"
#include "worker/pipeline/batch_source.h"
#include "worker/pipeline/link.h"
#include "worker/pipeline/stage_engine.h"
#include "worker/rounds/parts/round_transport.h"

namespace paceline {

// Called on the compute thread, but for UploadWeights().  One real
// implementation (worker/transport), one in the tests.
class RunFactory {
 public:
  virtual ~RunFactory() = default;

  // Compute threads of this process from now on.
  virtual void SetThreads(int threads) = 0;

  // Errors: InvalidArgument  layers that this engine cannot build
  virtual absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(
      const EngineOptions& options) = 0;

  // Reads the script `spec.model.file` and tries it with samples of
  // `spec.data.shape`.
  // Errors: NotFound, PermissionDenied, InvalidArgument: name the file;
  //         Unimplemented  this engine computes no scripts
  virtual absl::StatusOr<ScriptModel> ReadScript(const JobSpec& spec) = 0;

  // The weights that `spec.weights`, which is not empty, has for `layers`.
  // Without layers the file is only compared with the model.
  // Errors: NotFound, PermissionDenied, InvalidArgument: name the file
  virtual absl::StatusOr<std::vector<NamedTensor>> ReadWeights(
      const ModelSpec& spec, const ModelDescription& model,
      const LayerRange& layers, WeightsOrigin& origin) = 0;

  // As HashFile(), of a weights file.
  virtual absl::StatusOr<uint64_t> FingerprintOf(const std::string& path) {
    return HashFile(path);
  }

  // Errors: NotFound, InvalidArgument, DataLoss: name the file
  //   turns  the batches of the walk that this worker takes
  virtual absl::StatusOr<std::unique_ptr<BatchSource>> OpenData(
      const JobSpec& spec, const Turns& turns) = 0;

  // Opens the fence of a round group; `sink` outlives what is returned.
  // Errors: Aborted  the fence is not above all that were open before;
  //         FailedPrecondition  another run is open
  virtual absl::StatusOr<std::shared_ptr<RoundTransport>> ConnectGroup(
      const Fence&, const MemberId& /*self*/, RoundSink* /*sink*/) {
    return Unimplemented("this worker joins no round groups");
  }

  // Opens the fence: from now on frames of it are accepted.
  virtual absl::StatusOr<RunConnections> Connect(const RunWiring& wiring) = 0;

  // On the worker of stage 0, after Connect().
  virtual absl::Status OpenGate(const Fence& fence,
                                const GateOptions& options) = 0;

  // Hands weights or predictions over to the coordinator, durably; tries again
  // until it worked or `cancel` says otherwise.  Any thread.
  // Errors: Aborted, InvalidArgument, ResourceExhausted (its disk is full);
  //         cancel.status()
  virtual absl::Status UploadWeights(const Fence& fence,
                                     const std::vector<TensorPart>& parts,
                                     const CancelToken& cancel) = 0;
};

}  // namespace paceline
