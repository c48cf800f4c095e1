// The WeightsStore over a folder: <folder>/<job>/NAME.safetensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/jobs/weights_store.h"
#include "coordinator/store/weights_file.h"
#include "core/os/task_loop.h"

namespace paceline {

// Thread-safe; the files belong to its thread "weights".  Its callers bound its
// queue: each has one chunk under way.
class FileWeightsStore final : public WeightsStore {
 public:
  explicit FileWeightsStore(std::string folder);
  ~FileWeightsStore() override { Stop(); }

  // Runs the pending requests; later ones are dropped.  Objects that a `done`
  // refers to must live until this returns.
  void Stop() { loop_.Stop(); }

  void Open(const Fence& fence, SafetensorsLayout layout,
            std::function<void(absl::Status)> done) override;
  void Write(v1::WeightsPiece piece,
             std::function<void(absl::Status)> done) override;
  void Sync(const Fence& fence,
            std::function<void(absl::Status)> done) override;
  void Save(const Fence& fence,
            std::function<void(absl::StatusOr<SavedWeights>)> done) override;
  void Forget(JobId job) override;
  void Read(
      JobId job, const std::string& name, int64_t offset, int64_t limit,
      std::function<void(absl::StatusOr<v1::WeightsChunk>)> done) override;

 private:
  struct Expected {
    Fence fence;
    // Or the error of opening it, which Write() returns.
    absl::StatusOr<std::unique_ptr<WeightsFile>> file;
  };

  std::string FolderOf(JobId job) const;
  absl::StatusOr<WeightsFile*> Find(const Fence& fence);
  static absl::StatusOr<v1::WeightsChunk> ReadPart(const std::string& path,
                                                   int64_t offset,
                                                   int64_t limit);

  const std::string folder_;
  std::map<JobId, Expected> expected_;  // the loop's
  TaskLoop loop_;
};

}  // namespace paceline
