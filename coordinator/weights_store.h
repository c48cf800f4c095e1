// A WeightsStore puts the weights of finished jobs together, piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/model/safetensors_layout.h"
#include "paceline/v1/control.pb.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

struct SavedWeights {
  std::string path;
  std::string sha256;  // of the whole file, lower hex
  int64_t bytes = 0;
};

// Thread-safe; never blocks.  What is asked for is done in the order asked;
// every `done` is called exactly once, from the store's thread.
class WeightsStore {
 public:
  virtual ~WeightsStore() = default;

  // Expects the weights of `fence.job` from now on, also what an earlier
  // process of the coordinator had received and synced of the same fence.
  // Reserves the room for all of it.  A layout of no tensors says that it is
  // not known yet: until it is opened again with one, who writes is told to
  // try again (Unavailable).
  // Errors: ResourceExhausted  the disk is full; names the path
  virtual void Open(const Fence& fence, SafetensorsLayout layout,
                    std::function<void(absl::Status)> done) = 0;

  // Errors:
  //   Aborted            no weights are expected under this fence
  //   InvalidArgument    unknown tensor, or a range outside of it
  //   ResourceExhausted  the disk is full; names the path
  virtual void Write(v1::WeightsPiece piece,
                     std::function<void(absl::Status)> done) = 0;

  // All that was written under `fence` is on the disk when `done` is called.
  virtual void Sync(const Fence& fence,
                    std::function<void(absl::Status)> done) = 0;

  // Checks that every byte is there, syncs, hashes, and gives the file its
  // name.
  // Errors:
  //   FailedPrecondition  not all is there; names what is missing
  virtual void Save(const Fence& fence,
                    std::function<void(absl::StatusOr<SavedWeights>)> done) = 0;

  // Expects nothing any more for `job` and removes all its files.
  virtual void Forget(JobId job) = 0;

  // At most `limit` bytes of the saved file `name` from `offset` on.
  // Errors: NotFound  there is no such file.
  virtual void Read(
      JobId job, const std::string& name, int64_t offset, int64_t limit,
      std::function<void(absl::StatusOr<v1::WeightsChunk>)> done) = 0;
};

}  // namespace paceline
